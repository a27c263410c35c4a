"""What puts qkvfuse into other libraries, one module for each of them.

    qkvfuse.integrations.transformers    attention modules of Hugging Face models

Importing this package imports none of them.
"""
