#ifndef TESSERA_FOLDING_PASSES
#define TESSERA_FOLDING_PASSES

include "mlir/Pass/PassBase.td"

def DeduplicateLayers : Pass<"deduplicate-layers", "::mlir::ModuleOp"> {
  let summary = "keeps four of many equal layers (six on a mesh); one represents the removed ones";
  let description = [{
    Layers (or groups of layers, such as one with a window and one without) that are the same
    program except for their state become four: the first, the second, the third, which represents
    all following ones, and the last. `graph.repeat_count` on ops of the third layer gives how many
    layers it represents; `graph.folded` on the module gives which. State, gradients, updates,
    initial values and loop-carried values are folded with their layer. Nothing changes if fewer
    than five layers are equal, or if a program does not treat them alike. In a module that is
    folded already, only marks are renewed, for ops and state that were added since.

    `keep-ends` keeps one more layer at each end of the row, so seven must be equal. On a mesh the
    first layer's input and the last one's output may have another sharding than between layers, and
    the reshards next to them become part of the second layer and of the last but one.

    Before:
    ```mlir
    func.func @logits(%w0 {graph.layer = #graph.layer<0>, graph.state = "h.0.w"}, …,
      %w79 {graph.layer = #graph.layer<79>, graph.state = "h.79.w"}, %x) {
      %1 = call @layer(%x, %w0) {graph.layer = #graph.layer<0>}
      …
      %80 = call @layer(%79, %w79) {graph.layer = #graph.layer<79>}
    ```
    After:
    ```mlir
    module attributes {graph.folded = array<i64: 0, 1, 80>} {
    func.func @logits(%w0 {graph.layer = #graph.layer<0>, graph.state = "h.0.w"}, %w1 …,
      %w2 {graph.layer = #graph.layer<2>, graph.repeat_count = 77 : i64, graph.state = "h.2.w"},
      %w79 {graph.layer = #graph.layer<79>, graph.state = "h.79.w"}, %x) {
      %1 = call @layer(%x, %w0) {graph.layer = #graph.layer<0>}
      %2 = call @layer(%1, %w1) {graph.layer = #graph.layer<1>}
      %3 = call @layer(%2, %w2) {graph.layer = #graph.layer<2>, graph.repeat_count = 77 : i64}
      %80 = call @layer(%3, %w79) {graph.layer = #graph.layer<79>}
    ```
    `graph.folded` lists the first layer, the number of layers in a unit, and the number of units in
    the whole program.
  }];
  let options = [Option<"explain", "explain", "bool", "false",
  "Emit a remark that says why layers were not folded">,
  Option<"keepEnds", "keep-ends", "bool", "false",
  "Keep one more layer at each end, as programs on a mesh need">];
}

def RestoreLayers : Pass<"restore-layers", "::mlir::ModuleOp"> {
  let summary = "restores the layers that deduplicate-layers removed";
  let description = [{
    The inverse of `deduplicate-layers`, for any program whose second and third layer are still
    equal. It fails if they are not, and names the first op that differs; so decisions about the
    third layer hold for all layers that it represents.

    Before: the module above. After: the module that `deduplicate-layers` had, without
    `graph.folded` and `graph.repeat_count`.

    `keep-equal` leaves a module folded whose layers will have the same kernels. That is not so if
    they differ in a number that kernels do not read from memory, or if a kernel reads a value of
    every layer. A module with decomposed reduce-scatters is restored too: their last sums fuse with
    the next layer, at positions of their own.

    `keep-local` leaves a module folded that has no collectives; those of all layers are ordered at
    once.
  }];
  let options = [Option<"keepEqual", "keep-equal", "bool", "false",
  "Restore only layers that would have kernels of their own">,
  Option<"keepLocal", "keep-local", "bool", "false",
  "Restore only layers of a module with collectives">];
}

#endif
