"""Real servers for tests, one module each: started when a test needs them, gone at the end."""
