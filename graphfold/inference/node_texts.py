"""Words of nodes: the form of a node, or the forms of the words under it."""

from __future__ import annotations

from graphfold.dag import TypedDAG

#: Characters of the text of a phrase; longer text ends in an ellipsis.
MOST_CHARACTERS = 200


def node_words(dag: TypedDAG) -> list[str | None]:
    """The form of every node that has one, in node order."""
    words: list[str | None] = [None] * dag.num_nodes
    for node_type in dag.schema.types:
        space = f"type:{node_type.name}"
        if (space, "form") in dag.dictionaries:
            nodes = dag.nodes_of_type(node_type.name).tolist()
            for node, word in zip(nodes, dag.strings(space, "form"), strict=True):
                words[node] = word
    return words


def node_texts(dag: TypedDAG) -> list[str | None]:
    """The text of every node: its form, or those of its inputs between blanks; None of no words.

    A phrase of more than `MOST_CHARACTERS` is cut, so that long chains take linear time.
    """
    texts = node_words(dag)
    if all(text is None for text in texts):
        return texts
    ptr, index = dag.input_ptr.tolist(), dag.input_index.tolist()
    for node in dag.depth.argsort(stable=True).tolist():
        if texts[node] is None:
            below = (texts[i] for i in index[ptr[node] : ptr[node + 1]] if i >= 0)
            joined = " ".join(text for text in below if text)
            texts[node] = _cut(joined) or None
    return texts


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"
