"""The `lora` experiment."""
