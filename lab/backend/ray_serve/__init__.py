"""The HTTP app as a Ray Serve application: a front that speaks the protocol, and replicas that own the models."""
