"""The client side of the five protocols, blocking and asyncio. Imports wire, and of transport what both sides share;
never the broker.
"""
