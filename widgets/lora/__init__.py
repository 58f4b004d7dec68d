"""The views of the `lora` page."""
