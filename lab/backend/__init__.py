"""The backend: the protocol between views and models, and its implementations."""
