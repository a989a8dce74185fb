"""How does a PostgreSQL server keep memories?"""
