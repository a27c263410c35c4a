// Symbols that the shared library exports; everything else is hidden.
#pragma once

#if defined(__GNUC__)
#define QKVFUSE_API __attribute__((visibility("default")))
#else
#define QKVFUSE_API
#endif
