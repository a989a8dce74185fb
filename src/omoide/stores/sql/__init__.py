"""Which statements keep memories in a database?"""
