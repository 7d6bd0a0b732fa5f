# SPDX-License-Identifier: BSD-3-Clause
"""Graphs: the work of a piece of program, captured once and replayed without its Python and C++.

The names and the arguments are those of ``torch.cuda.graphs``. docs/graphs.md has the rules.
"""

import gc
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, ClassVar

import torch
from torch.utils import _pytree

from torch_openreg import _C
from torch_openreg.name import DEVICE_TYPE, MODULE
from torch_openreg.openreg.devices import synchronize
from torch_openreg.openreg.graph_inputs import GraphInputs
from torch_openreg.openreg.memory import empty_cache, empty_host_cache
from torch_openreg.openreg.streams import Stream, StreamContext, current_stream, stream

#: Of torch's compiler, for mode="reduce-overhead" (compile/csrc/graph_replay.h).
Recording = _C._Recording

PoolHandle = tuple[int, int]
_Tensors = tuple[torch.Tensor, ...]


def is_current_stream_capturing() -> bool:
    """Return whether the current stream is captured. Does not start the device."""
    return _C.is_current_stream_capturing()


def graph_pool_handle() -> PoolHandle:
    """Return the name of a new memory pool, for graphs that are to share one."""
    return _C.new_pool_id()


class OpenRegGraph(_C._Graph):
    """Work that was captured from a stream, and the memory that it uses.

    Args:
        keep_graph: ``instantiate`` makes the graph ready to be replayed, at the latest the first
            ``replay``; else the end of the capture does.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        super().__init__(keep_graph)
        self._inputs: GraphInputs | None = None

    def __repr__(self) -> str:
        try:
            return f"<{MODULE}.OpenRegGraph of {self.node_count()} commands>"
        except RuntimeError:
            return f"<{MODULE}.OpenRegGraph without a capture>"

    def capture_begin(
        self,
        pool: PoolHandle | None = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Capture what is launched on the current stream from now on, by whatever thread.

        Args:
            pool: memory is taken from this pool (``graph_pool_handle()``, or ``pool()`` of another
                graph), else from a new one. Graphs that share a pool have to be replayed in the
                order of their captures, and one that is replayed overwrites the results of others.
            capture_error_mode: which threads may not wait or allocate without torch meanwhile:
                ``"global"``, ``"thread_local"`` or ``"relaxed"``.
            check_input_liveness: follow which tensors from outside the captured operators use, and
                have ``replay`` raise an error once one of them is gone. Capturing takes longer.

        Raises:
            RuntimeError: if the graph holds a capture, or the stream is captured already.
            ValueError: for another mode.
        """
        super().capture_begin(pool, capture_error_mode)
        self._inputs = GraphInputs() if check_input_liveness else None
        if self._inputs is not None:
            self._inputs.follow()

    def capture_end(self) -> None:
        """End the capture, on the stream on which it began.

        Raises:
            RuntimeError: with the reason, if the capture became invalid or a stream was not
                joined. The graph is then empty, as before.
        """
        if self._inputs is not None:
            self._inputs.stop()
        super().capture_end()

    def instantiate(self) -> None:
        """Make a graph with ``keep_graph=True`` ready to be replayed."""
        super().instantiate()

    def replay(self) -> None:
        """Queue the graph on the current stream of its device.

        Raises:
            RuntimeError: if the graph holds no capture; with ``check_input_liveness``, if a tensor
                that it reads or writes is gone.
        """
        if self._inputs is not None:
            self._inputs.require(self.pool())
        super().replay()

    def reset(self) -> None:
        """Wait for the replays that are queued and give the graph and its memory back."""
        super().reset()
        self._inputs = None

    def pool(self) -> PoolHandle:
        """Return the name of the pool that the graph's memory is from."""
        return super().pool()

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Let captured operators draw from a generator that is not the device's default one."""
        super().register_generator_state(generator)

    def enable_debug_mode(self) -> None:
        """Let ``debug_dump`` write."""
        super().enable_debug_mode()

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph's commands and their order to a file, in the language of Graphviz."""
        super().debug_dump(debug_path)

    def node_count(self) -> int:
        """Return the number of commands that a replay runs."""
        return super().node_count()


class graph:
    """Context manager that captures its block into a graph.

    On entering it waits for the device and empties the caches of device and pinned memory.

    Args:
        openreg_graph: that takes the capture.
        pool: see ``OpenRegGraph.capture_begin``.
        stream: that is captured and current in the block; one for all graphs if None.
        capture_error_mode: see ``OpenRegGraph.capture_begin``.
        enable_annotations: of torch.cuda, whose driver numbers the kernels of a graph for them.
            Here a profile has the names of the operators of a replay without them.
        check_input_liveness: see ``OpenRegGraph.capture_begin``.

    Raises:
        NotImplementedError: for ``enable_annotations=True``.
    """

    default_capture_stream: ClassVar[torch.Stream | None] = None

    def __init__(
        self,
        openreg_graph: OpenRegGraph,
        pool: PoolHandle | None = None,
        stream: torch.Stream | None = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ) -> None:
        if enable_annotations:
            raise NotImplementedError(
                "enable_annotations=True: annotations of kernels (torch.cuda._graph_annotations) "
                "need CUDA's driver; a profile of this device names the operators of a replay"
            )
        if stream is None:
            if graph.default_capture_stream is None:
                graph.default_capture_stream = Stream()
            stream = graph.default_capture_stream
            if stream.device.index != torch.accelerator.current_device_index():
                stream = graph.default_capture_stream = Stream()
        self.openreg_graph = openreg_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self.check_input_liveness = check_input_liveness
        self._context: StreamContext | None = None

    def __enter__(self) -> None:
        synchronize()
        if torch.compiler.config.force_cudagraph_gc:
            gc.collect()
        empty_cache()
        empty_host_cache()  # torch keeps the host's pool of each earlier graph until then
        self._context = stream(self.capture_stream)
        self._context.__enter__()
        try:
            self.openreg_graph.capture_begin(
                self.pool, self.capture_error_mode, self.check_input_liveness
            )
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._context is not None
        try:
            self.openreg_graph.capture_end()
        finally:
            self._context.__exit__(kind, error, traceback)


def _check_callable(function: Callable[..., Any]) -> None:
    if not isinstance(function, torch.nn.Module):
        return
    hooks = (
        function._backward_hooks,
        function._backward_pre_hooks,
        function._forward_hooks,
        function._forward_pre_hooks,
    )
    if any(len(kind) > 0 for kind in hooks):
        raise RuntimeError(
            "make_graphed_callables: the module has hooks, which a replay would not call; register "
            "them on the graphed module"
        )
    if any(buffer.requires_grad for buffer in function.buffers()):
        raise RuntimeError(
            "make_graphed_callables: a buffer of the module requires grad; only parameters may"
        )


class _Graphed:
    """One callable: the tensors that its two graphs read and write."""

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self.function = function
        self.arguments = arguments
        leaves, self.spec = _pytree.tree_flatten(arguments)
        for leaf in leaves:
            if not isinstance(leaf, torch.Tensor):
                raise TypeError(
                    "make_graphed_callables: sample_args may hold tensors only, but there is a "
                    f"{type(leaf).__name__}: bind other arguments to the callable"
                )
        self.inputs: _Tensors = tuple(leaves)
        self.parameters: _Tensors = (
            tuple(function.parameters()) if isinstance(function, torch.nn.Module) else ()
        )
        self.forward = OpenRegGraph()
        self.backward: OpenRegGraph | None = None
        self.outputs: _Tensors = ()
        self.out_spec: Any = None
        self.output_grads: tuple[torch.Tensor | None, ...] = ()
        self.input_grads: tuple[torch.Tensor | None, ...] = ()

    @property
    def surface(self) -> _Tensors:
        return self.inputs + self.parameters

    def run(self) -> None:
        outputs, self.out_spec = _pytree.tree_flatten(self.function(*self.arguments))
        self.outputs = tuple(outputs)

    def differentiate(self, allow_unused: bool) -> None:
        wanted = tuple(t for t in self.surface if t.requires_grad)
        if not wanted or self.backward is None:
            self.input_grads = (None,) * len(self.surface)
            return
        grads = torch.autograd.grad(
            outputs=tuple(o for o in self.outputs if o.requires_grad),
            inputs=wanted,
            grad_outputs=tuple(g for g in self.output_grads if g is not None),
            only_inputs=True,
            allow_unused=allow_unused,
        )
        found = iter(grads)
        self.input_grads = tuple(next(found) if t.requires_grad else None for t in self.surface)

    def make_output_grads(self) -> None:
        self.output_grads = tuple(
            torch.empty_like(o) if o.requires_grad else None for o in self.outputs
        )
        if any(g is not None for g in self.output_grads) and self.backward is None:
            self.backward = OpenRegGraph()

    def forget(self) -> None:
        self.outputs = ()
        self.output_grads = ()
        self.input_grads = ()

    def replayer(self) -> Callable[..., Any]:
        graphed = self

        class Replay(torch.autograd.Function):
            @staticmethod
            def forward(context: Any, *given: torch.Tensor) -> _Tensors:
                for static, tensor in zip(graphed.inputs, given, strict=False):
                    if static.data_ptr() != tensor.data_ptr():
                        static.copy_(tensor)
                graphed.forward.replay()
                return tuple(output.detach() for output in graphed.outputs)

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(context: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
                for static, grad in zip(graphed.output_grads, grads, strict=True):
                    if static is not None and static.data_ptr() != grad.data_ptr():
                        static.copy_(grad)
                if graphed.backward is not None:
                    graphed.backward.replay()
                return tuple(g if g is None else g.detach() for g in graphed.input_grads)

        def call(*arguments: Any) -> Any:
            leaves, spec = _pytree.tree_flatten(arguments)
            if spec != graphed.spec:
                raise TypeError(
                    "a graphed callable takes arguments that are nested as those of its capture"
                )
            outputs = Replay.apply(*leaves, *graphed.parameters)  # type: ignore[no-untyped-call]
            return _pytree.tree_unflatten(list(outputs), graphed.out_spec)

        return call


def _in_place_of(module: torch.nn.Module, call: Callable[..., Any]) -> torch.nn.Module:
    training = module.training
    eager = module.forward

    def forward(*arguments: Any) -> Any:
        # A module that was switched since runs without its graph.
        return call(*arguments) if module.training == training else eager(*arguments)

    module.forward = forward
    return module


def make_graphed_callables(
    callables: Callable[..., Any] | tuple[Callable[..., Any], ...],
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Return callables whose forward and backward passes are replays of graphs.

    Several callables share a memory pool: they have to be called in the order in which they are
    given, and their backward passes in the reverse order. Results are overwritten by the next call.

    Args:
        callables: functions or modules of tensors, without hooks; modules are changed in place,
            and run without their graph while in the other mode (train, eval).
        sample_args: a tuple of tensors (or of nested containers of them) as the callable takes
            them; for several callables, a tuple of such tuples. Shapes, dtypes and
            ``requires_grad`` are fixed by them.
        num_warmup_iters: how often each is run before the capture.
        allow_unused_input: inputs without influence on the results get no gradient, instead of an
            error.
        pool: see ``OpenRegGraph.capture_begin``.

    Raises:
        RuntimeError: within autocast with its cache; for modules with hooks, or with buffers that
            require grad.
        TypeError: if something else than tensors is in ``sample_args``.
    """
    if torch.is_autocast_enabled(DEVICE_TYPE) and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables: the cache of autocast would outlive the graphs' memory; use "
            "torch.autocast(..., cache_enabled=False)"
        )
    single = not isinstance(callables, tuple)
    functions: Sequence[Callable[..., Any]] = (
        callables if isinstance(callables, tuple) else (callables,)
    )
    samples = (sample_args,) if single else sample_args
    if len(samples) != len(functions):
        raise ValueError(
            f"make_graphed_callables: {len(functions)} callables, but sample_args has "
            f"{len(samples)} tuples"
        )
    for function in functions:
        _check_callable(function)
    all_graphed = [
        _Graphed(function, tuple(arguments))
        for function, arguments in zip(functions, samples, strict=True)
    ]
    pool = graph_pool_handle() if pool is None else pool

    # On a stream of its own, so that the capture finds all that is made once.
    synchronize()
    side = Stream()
    side.wait_stream(current_stream())
    with stream(side):
        for graphed in all_graphed:
            for _ in range(num_warmup_iters):
                graphed.run()
                graphed.make_output_grads()
                graphed.differentiate(allow_unused_input)
            graphed.forget()
    synchronize()

    for graphed in all_graphed:
        with graph(graphed.forward, pool=pool):
            graphed.run()
    for graphed in reversed(all_graphed):
        graphed.make_output_grads()
        if graphed.backward is not None:
            with graph(graphed.backward, pool=pool):
                graphed.differentiate(allow_unused_input)

    results: list[Any] = []
    for graphed in all_graphed:
        call = graphed.replayer()
        function = graphed.function
        results.append(
            _in_place_of(function, call) if isinstance(function, torch.nn.Module) else call
        )
    return results[0] if single else tuple(results)
