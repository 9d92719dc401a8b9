"""
Webhooks over HTTP: `POST /hooks/{source}` receives an event once, and the inbox processes it once.

May import `web` and the library's inbox, and no other app. Start with `app.py`, which is all of it.
"""
