# SPDX-License-Identifier: BSD-3-Clause
"""How links, the table of contents and a C header are converted."""

from docs.sphinx import c_header, pages

PAGES = ["README.md", "docs/README.md", "docs/a.md", "examples/x/README.md"]


def staged(page: str, text: str) -> str:
    return pages.stage(page, text, PAGES)


def test_links_to_pages_stay() -> None:
    assert staged("docs/a.md", "[b](a.md#part)") == "[b](a.md#part)"
    assert staged("docs/a.md", "[x](../examples/x/README.md)") == "[x](../examples/x/README.md)"
    assert staged("docs/a.md", "[x](../examples/x)") == "[x](../examples/x/README.md)"
    assert staged("README.md", "[a](https://example.org)") == "[a](https://example.org)"
    assert staged("README.md", "[a](#part)") == "[a](#part)"


def test_links_to_pages_with_another_name() -> None:
    assert staged("docs/a.md", "[top](../README.md#part)") == "[top](../index.md#part)"
    assert staged("README.md", "[docs](docs/README.md)") == "[docs](docs/index.md)"


def test_links_to_sources_become_code() -> None:
    assert staged("docs/a.md", "[x.h](../runtime/x.h)") == "`x.h`"
    assert staged("docs/a.md", "[`x.h`](../runtime/x.h)") == "`x.h`"


def test_contents() -> None:
    index = "# Docs\n\n## Start\n\n1. [a](a.md): A.\n2. [x](../examples/x/README.md)\n\n## End\n"
    assert pages.contents(index, PAGES) == (
        "```{toctree}\n:hidden:\n:caption: Start\n\ndocs/a\nexamples/x/README\n```\n\n"
        "```{toctree}\n:hidden:\n:caption: End\n\n```\n"
    )


HEADER = """// SPDX-License-Identifier: BSD-3-Clause
//
// x.h - an interface.
//
// Threads: any_thread.
#ifndef X_H_
#define X_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------- memory
// Tier 1.

// orFree() frees *pointer.
//   orErrorOne    the first
//   orErrorTwo    the second
OPENREG_API int orFree(void* pointer);
OPENREG_API int orOther(void);

typedef struct orThing {
  int a;
} orThing;

#ifdef __cplusplus
}
#endif

#endif
"""


def test_a_header() -> None:
    assert c_header.markdown("x.h", HEADER) == (
        "# x.h\n\n`x.h` - an interface.\n\nThreads: any\\_thread.\n\n"
        "## Memory\n\nTier 1.\n\n`orFree()` frees \\*pointer.\n\n"
        "- `orErrorOne`: the first\n- `orErrorTwo`: the second\n\n"
        "```c\nOPENREG_API int orFree(void* pointer);\nOPENREG_API int orOther(void);\n```\n\n"
        "```c\ntypedef struct orThing {\n  int a;\n} orThing;\n```\n"
    )
