"""How does one SQLite file hold everything?"""
