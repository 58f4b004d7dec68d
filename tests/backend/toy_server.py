"""The model process with toys instead of models: `python -m backend.toy_server --fd N`."""

from __future__ import annotations

import argparse
import logging
import socket

from lab.backend.limits import Limits
from lab.backend.serve import die_with_parent, serve, take_token

from .toys import backend


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--model")
    parser.add_argument("--threads")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    die_with_parent()
    serve(backend(limits=Limits(heartbeat_s=0.2)), socket.socket(fileno=arguments.fd), take_token())


if __name__ == "__main__":
    main()
