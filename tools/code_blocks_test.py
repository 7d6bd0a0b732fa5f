# SPDX-License-Identifier: BSD-3-Clause
"""Code blocks of a page are found with their marks."""

from tools.code_blocks import CodeBlock, code_blocks

PAGE = """# Page

<!-- run: import torch

    x = 1 -->

    print(x)

        deeper()

Text:

```python
y
```

- an item

      item(code)

<!-- run -->

    after_a_list()

<!-- shell -->

```
$ ls
```
<!-- a comment -->
Text.
    no code
"""


def test_blocks_and_marks() -> None:
    assert list(code_blocks(PAGE)) == [
        CodeBlock(7, "run", "import torch\n\n    x = 1", 3, "", "print(x)\n\n    deeper()\n"),
        CodeBlock(13, "", "", 0, "python", "y\n"),
        CodeBlock(19, "", "", 0, "", "item(code)\n"),
        CodeBlock(23, "run", "", 21, "", "after_a_list()\n"),
        CodeBlock(27, "shell", "", 25, "", "$ ls\n"),
    ]
