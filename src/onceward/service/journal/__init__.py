"""
The journal of calls, for whoever has an admin token of the tenant.
"""
