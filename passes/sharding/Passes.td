#ifndef TESSERA_SHARDING_PASSES
#define TESSERA_SHARDING_PASSES

include "mlir/Pass/PassBase.td"

def AssignShardings : Pass<"assign-shardings", "::mlir::ModuleOp"> {
  let summary = "decides for every value where its elements are, and inserts what moves them";
  let description = [{
    Puts axes of the mesh on dimensions of the model: `data` on the sequences of a batch, `context` on their tokens, `tensor` on what its
    cost model finds best (heads, the width of the feed-forward layer, the vocabulary, tokens between them), and on every op along the
    first of those that it has. State is cut over `data` and `context` as `zero` says. See README.md for the rules.

    Before, for `mesh=data=2,tensor=4`:
    ```mlir
    func.func private @mlp(%x: tensor<8x64xf32>, %up: tensor<64x256xf32>, %down: tensor<256x64xf32>) -> tensor<8x64xf32> {
      %h = graph.einsum "bk,kn->bn" %x, %up : (...) -> tensor<8x256xf32>
      %y = graph.einsum "bk,kn->bn" %h, %down : (...) -> tensor<8x64xf32>
    ```
    After:
    ```mlir
    dist.mesh @mesh [#dist.axis<"data" = 2 memory>, #dist.axis<"tensor" = 4 memory>]
    func.func private @mlp(%x: tensor<8x64xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {} ]>}, ...) -> tensor<8x64xf32> {
      %h = graph.einsum "bk,kn->bn" %x, %up {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {"tensor"} ]>]} : ...
      %y = graph.einsum "bk,kn->bn" %h, %down {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {} ], partial sum {"tensor"}>]} : ...
      %z = dist.reshard %y to <@mesh, [{"data"}, {} ]> : tensor<8x64xf32>
    ```
    Tensors keep their global shapes. Afterwards every operand is placed as its op needs it, which `verify-shardings` proves.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"mesh", "mesh", "std::string", "\"\"", "Axes and their sizes, the slowest-varying first: data=2,tensor=4">,
    Option<"zero", "zero", "int64_t", "0", "What is cut over data and context: 1 optimizer state, 2 gradients too, 3 parameters too">,
    Option<"parts", "parts", "bool", "false", "Whether what products gather and scatter goes in parts whatever it costs, so that tokens may be cut over tensor; then the solver looks at no single ops">,
    Option<"solver", "solver", "bool", "true", "Let the solver cut single ops otherwise than colors say, where the estimate gains by it">,
    Option<"explain", "explain", "bool", "false", "Remark what the solver changed of what colors say">];
}

def CollectiveMatmul : Pass<"collective-matmul", "::mlir::ModuleOp"> {
  let summary = "decides which gathers and scatters go in parts, beside the products that need or make them";
  let description = [{
    Marks with `dist.collective_matmul` what `partition-to-local` does in parts (Wang et al. 2023, collective matmul): a gather over
    `tensor` of what products alone read, and a scatter over it of what one product makes. With `mode=auto` those by which the
    estimate of a step's time gains, with `on` all. What cannot go in parts, such as uneven shares, stays whole; `explain` remarks why.

    Before, tokens between layers being cut over `tensor`:
    ```mlir
    %x = dist.reshard %n to <@mesh, [{}, {} ]> : tensor<4x8xf32>
    %h = graph.einsum "tk,kn->tn" %x, %up {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"} ]>]} : ...
    %o = graph.einsum "tn,nk->tk" %h, %down {dist.shardings = [#dist.sharding<@mesh, [{}, {} ], partial sum {"tensor"}>]} : ...
    %y = dist.reshard %o to <@mesh, [{"tensor"}, {} ]> : tensor<4x8xf32>
    ```
    After, the same with marks:
    ```mlir
    %x = dist.reshard %n to <@mesh, [{}, {} ]> {dist.collective_matmul} : tensor<4x8xf32>
    ...
    %y = dist.reshard %o to <@mesh, [{"tensor"}, {} ]> {dist.collective_matmul} : tensor<4x8xf32>
    ```
  }];
  let options = [
    Option<"mode", "mode", "std::string", "\"auto\"", "auto, on or off">,
    Option<"explain", "explain", "bool", "false", "Remark why gathers and scatters stay whole">];
}

def VerifyShardings : Pass<"verify-shardings", "::mlir::ModuleOp"> {
  let summary = "proves that operands are placed as their ops need them";
  let description = [{
    Of every op: dimensions that are one loop are cut alike, none that must be whole is cut, operands are parts of sums only
    where the op is linear in them, and the results are placed as follows from that. A part of a sum that enters
    anything else would be a wrong number on every device; here it is an error.
  }];
}

def PartitionToLocal : Pass<"partition-to-local", "::mlir::ModuleOp"> {
  let summary = "makes the program of one device: shares instead of tensors, collectives instead of reshardings";
  let description = [{
    Ops that need more than their shares of the vocabulary or of attention's tokens become several, with collectives among them.
    What `collective-matmul` marked becomes `dist.permute`s of parts, and products of parts.
    Devices whose shares have equal shapes run one program; `device` is any of those. What still differs between them, where
    their shares begin, is an input that the runtime writes once: "mesh.offsets", as many numbers as the module's attribute
    `dist.offsets` describes.

    Before:
    ```mlir
    %y = graph.einsum "bk,kn->bn" %h, %down {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {} ], partial sum {"tensor"}>]} : (tensor<8x256xf32>, tensor<256x64xf32>) -> tensor<8x64xf32>
    %z = dist.reshard %y to <@mesh, [{"data"}, {} ]> : tensor<8x64xf32>
    ```
    After:
    ```mlir
    %y = graph.einsum "bk,kn->bn" %h, %down : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
    %z = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"tensor">] : tensor<4x64xf32> -> tensor<4x64xf32>
    ```
    Afterwards no sharding and no reshard remains but the shardings of state and inputs, as attributes with their global shapes.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect", "::mlir::func::FuncDialect"];
  let options = [Option<"device", "device", "int64_t", "0", "The device whose shapes the program has">];
}

def VerifyPartition : Pass<"verify-partition", "::mlir::ModuleOp"> {
  let summary = "verifies that the program is one device's, over its shards";
  let description = [{
    No sharding and no reshard remains in it. Each argument and result with `dist.sharding` and
    `dist.global_shape` has the type of that device's shard of that shape.
  }];
  let options = [Option<"device", "device", "int64_t", "0", "The device whose shapes the program has">];
}

#endif
