#ifndef TESSERA_FOLDING_PASSES
#define TESSERA_FOLDING_PASSES

include "mlir/Pass/PassBase.td"

def DeduplicateLayers : Pass<"deduplicate-layers", "::mlir::ModuleOp"> {
  let summary = "keeps four of many equal layers; one of them stands for all that go";
  let description = [{
    Layers, or groups of layers such as one with a window and one without, that are the same program but for their state become
    four: the first, the second, the third, which stands for all behind it, and the last. What belongs to the third says for how
    many (`graph.repeat_count`), the module which they are (`graph.folded`). State, gradients, updates, initial values and positions of
    loops go with their layer. Nothing changes where fewer than five are alike, or where a program does anything else with them than
    the same for each.

    Before:
    ```mlir
    func.func @logits(%w0 {graph.state = "h.0.w"}, %w1 {graph.state = "h.1.w"}, …,
      %w79 {graph.state = "h.79.w"}, %x) {
      %1 = call @layer(%x, %w0)
      %2 = call @layer(%1, %w1)
      …
      %80 = call @layer(%79, %w79)
    ```
    After:
    ```mlir
    module attributes {graph.folded = array<i64: 0, 1, 80>} {
    func.func @logits(%w0 {graph.state = "h.0.w"}, %w1 …, %w2 {graph.state = "h.2.w",
      graph.repeat_count = 77 : i64}, %w79 {graph.state = "h.79.w"}, %x) {
      %1 = call @layer(%x, %w0)
      %2 = call @layer(%1, %w1)
      %3 = call @layer(%2, %w2) {graph.repeat_count = 77 : i64}
      %80 = call @layer(%3, %w79)
    ```
    `graph.folded` lists the first layer, how many layers are repeated as one, and how often they stand in the whole program.
  }];
  let options = [Option<"explain", "explain", "bool", "false",
  "Remark why layers stay as they are">];
}

def RestoreLayers : Pass<"restore-layers", "::mlir::ModuleOp"> {
  let summary = "writes all layers out again";
  let description = [{
    The inverse of `deduplicate-layers`, for any program whose second and third layer are still the same. It fails if they are not, and
    names the first op where they differ; so what is decided for the third layer holds for all that it stands for.
  }];
}

#endif
