#ifndef TESSERA_SHARDING_PASSES
#define TESSERA_SHARDING_PASSES

include "mlir/Pass/PassBase.td"

def NarrowEmbeddings : Pass<"narrow-embeddings", "::mlir::ModuleOp"> {
  let summary = "looks up rows that are rounded anyway in a rounded copy of their table";
  let description = [{
    `precision` reads rows from the master weights and rounds them, which needs no copy of the
    table. With ZeRO the table is sharded, and its rows are looked up in a gathered table. Rounding
    the table first gives the same rows, and its gather sends half of the bytes. A copy that other
    ops read already (the table is also the head) is used.

    Before:
    ```mlir
    %rows = graph.embedding %table, %ids : (tensor<9x4xf32>, tensor<2x3xi32>) -> tensor<2x3x4xf32>
    %x = graph.convert %rows : tensor<2x3x4xf32> -> tensor<2x3x4xbf16>
    ```
    After:
    ```mlir
    %copy = graph.convert %table : tensor<9x4xf32> -> tensor<9x4xbf16>
    %x = graph.embedding %copy, %ids : (tensor<9x4xbf16>, tensor<2x3xi32>) -> tensor<2x3x4xbf16>
    ```
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def AssignShardings : Pass<"assign-shardings", "::mlir::ModuleOp"> {
  let summary = "chooses a sharding for every value, and inserts reshards between different ones";
  let description = [{
    Shards dimensions of the model over axes of the mesh: `data` and `replicate` the sequences of a
    batch, `context` their tokens, `tensor` what the cost model finds best (heads, feed-forward
    width, vocabulary, tokens between blocks). An op is sharded along the first of an axis's
    sharding groups that it has. `zero` says which state is also sharded over `data`, `expert` and
    `context`; over `replicate` none is. See README.md.

    Before, for `mesh=data=2,tensor=4`:
    ```mlir
    func.func private @mlp(%x: tensor<8x64xf32>, %up: tensor<64x256xf32>,
                           %down: tensor<256x64xf32>) -> tensor<8x64xf32> {
      %h = graph.einsum "bk,kn->bn" %x, %up : (...) -> tensor<8x256xf32>
      %y = graph.einsum "bk,kn->bn" %h, %down : (...) -> tensor<8x64xf32>
    ```
    After:
    ```mlir
    dist.mesh @mesh [#dist.axis<"data" = 2>, #dist.axis<"tensor" = 4>]
    func.func private @mlp(
        %x: tensor<8x64xf32> {dist.sharding = #dist.sharding<@mesh, [{"data"}, {} ]>}, ...)
        -> tensor<8x64xf32> {
      %h = graph.einsum "bk,kn->bn" %x, %up
          {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {"tensor"} ]>]} : ...
      %y = graph.einsum "bk,kn->bn" %h, %down
          {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {} ], partial sum {"tensor"}>]} : ...
      %z = dist.reshard %y to <@mesh, [{"data"}, {} ]> : tensor<8x64xf32>
    ```
    Tensors keep their global shapes. Afterwards every operand has the placement that its op
    requires, which `verify-shardings` checks.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect",
                           "::mlir::func::FuncDialect"];
  let options = [
    Option<"mesh", "mesh", "std::string", "\"\"",
           "Axes and their sizes, the slowest-varying first: data=2,tensor=4">,
    Option<"zero", "zero", "int64_t", "0",
           "ZeRO stage over data, expert and context: 1 shards optimizer state, and parameters "
           "if they are master weights; 2 gradients too; 3 parameters, gathered for each use">,
    Option<"expertTensor", "expert-tensor", "int64_t", "0",
           "How many devices of the axis tensor shard the width of an expert: 1, then they have "
           "different experts; the size of the axis; or 0, what the estimate prefers">,
    Option<"expertContext", "expert-context", "int64_t", "0",
           "How many devices of the axis context have the same experts: 1, or all, the size of the "
           "axis or 0">,
    Option<"parts", "parts", "bool", "false",
           "Assume that all-gathers and reduce-scatters overlap with matmuls (collective matmul), "
           "so that tokens may be sharded over tensor; no search op by op">,
    Option<"solver", "solver", "bool", "true",
           "Let the solver shard single ops differently from their sharding groups, where the "
           "estimated step time decreases">,
    Option<"explain", "explain", "bool", "false",
           "Remark how many strategies were tried, and what the solver changed">];
}

def CollectiveMatmul : Pass<"collective-matmul", "::mlir::ModuleOp"> {
  let summary = "decides which all-gathers and reduce-scatters to overlap with their matmuls";
  let description = [{
    Marks with `dist.collective_matmul` the reshards that `partition-to-local` decomposes into
    chunks (Wang et al. 2023, collective matmul): an all-gather over `tensor` that only matmuls
    read, and a reduce-scatter over it of a matmul's result. `mode=auto` marks those that decrease
    the estimated step time, `on` all. Reshards that cannot be decomposed, such as uneven shards,
    stay whole; `explain` remarks why.

    Before, with tokens between layers sharded over `tensor`:
    ```mlir
    %x = dist.reshard %n to <@mesh, [{}, {} ]> : tensor<4x8xf32>
    %h = graph.einsum "tk,kn->tn" %x, %up
        {dist.shardings = [#dist.sharding<@mesh, [{}, {"tensor"} ]>]} : ...
    %o = graph.einsum "tn,nk->tk" %h, %down
        {dist.shardings = [#dist.sharding<@mesh, [{}, {} ], partial sum {"tensor"}>]} : ...
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
    Option<"explain", "explain", "bool", "false", "Remark why a reshard is not decomposed">];
}

def VerifyShardings : Pass<"verify-shardings", "::mlir::ModuleOp"> {
  let summary = "verifies that operands and results are sharded as the ops' sharding rules require";
  let description = [{
    For every op: dimensions of one loop dimension are sharded alike, dimensions that are not
    shardable are not sharded, operands are partial only where the op is linear in them, and results
    have the placement that follows. A partial value in any other op would give wrong numbers on
    every device; here it is an error.
  }];
}

def PartitionToLocal : Pass<"partition-to-local", "::mlir::ModuleOp"> {
  let summary = "makes one device's program: local shards, and collectives instead of reshards";
  let description = [{
    Ops that need more than their shard of the vocabulary or of attention's tokens become several
    ops and collectives. Reshards that `collective-matmul` marked become `dist.permute`s and matmuls
    of chunks. Devices with equal local shapes run one program; `device` is any of them. Where their
    shards begin differs between them and is an input that the runtime writes once:
    "mesh.offsets", with the numbers that the module's attribute `dist.offsets` describes.

    An exchange of experts' rows becomes a `dist.exchange_rows`, which takes its counts from memory
    when it starts. With `pad-exchanges` it becomes a `dist.all_to_all` of as many rows for each
    device, between lookups that bring rows to their slots in it and from there: more bytes, but
    no count that the host has to know.

    Before:
    ```mlir
    %y = graph.einsum "bk,kn->bn" %h, %down
        {dist.shardings = [#dist.sharding<@mesh, [{"data"}, {} ], partial sum {"tensor"}>]}
        : (tensor<8x256xf32>, tensor<256x64xf32>) -> tensor<8x64xf32>
    %z = dist.reshard %y to <@mesh, [{"data"}, {} ]> : tensor<8x64xf32>
    ```
    After:
    ```mlir
    %y = graph.einsum "bk,kn->bn" %h, %down
        : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
    %z = dist.all_reduce sum %y over @mesh [#dist.axis_ref<"tensor">]
        : tensor<4x64xf32> -> tensor<4x64xf32>
    ```
    Afterwards no reshard is left, and no shardings except those of state and inputs, as attributes
    with their global shapes.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::tessera::dist::DistDialect",
                           "::mlir::func::FuncDialect"];
  let options = [Option<"device", "device", "int64_t", "0",
                        "The device for whose local shapes the program is made">,
                 Option<"padsExchanges", "pad-exchanges", "bool", "false",
                        "Send experts' rows in buffers of one size, so that no count is needed on "
                        "the host">];
}

def VerifyPartition : Pass<"verify-partition", "::mlir::ModuleOp"> {
  let summary = "verifies that the program is one device's, over its shards";
  let description = [{
    No sharding and no reshard remains in it. Each argument and result with `dist.sharding` and
    `dist.global_shape` has the type of that device's shard of that shape.
  }];
  let options = [
    Option<"device", "device", "int64_t", "0", "The device whose shapes the program has">];
}

#endif
