#ifndef TESSERA_AUTODIFF_PASSES
#define TESSERA_AUTODIFF_PASSES

include "mlir/Pass/PassBase.td"

def AddOverflowRounds : Pass<"add-overflow-rounds", "::mlir::ModuleOp"> {
  let summary = "repeats exchanges of rows for those that a device has no room for";
  let description = [{
    Between `graph.send_rows` with a `buffer` and `graph.return_rows` is what a device computes for
    rows of its experts. A loop repeats it for the rows that the buffer does not hold. Whether there
    are any is known when the program runs, so the loop has the attribute `overflow`: on whole
    tensors it has no iterations, and `partition-to-local` gives it a count. `differentiate` adds
    the loops of gradients in the same way; they compute again what the forward loop computed.

    Before:
    ```mlir
    %sent, %theirs = graph.send_rows %rows slots %slots groups %groups {buffer = 1.5} : ...
    %y = graph.grouped_matmul %sent, %w groups %theirs : ...
    %back = graph.return_rows %y slots %slots groups %groups {buffer = 1.5} : ...
    ```
    After:
    ```mlir
    %sent, %theirs = graph.send_rows ...
    %y = graph.grouped_matmul ...
    %first = graph.return_rows %y ...
    %back = graph.loop 1 (%i, %sum = %first) : (tensor<128x32xf32>) attributes {overflow} {
      %more, %those = graph.send_rows ...
      %z = graph.grouped_matmul ...
      %next = graph.return_rows %z ...
      %all = graph.add %sum, %next
      graph.yield %all
    }
    ```
  }];
}

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "builds @gradients from @loss, and each block's forward and backward function";
  let description = [{
    Reverse-mode differentiation with respect to the parameters of `@loss`, through the interface
    `Differentiable`. For each distinct block function on the path of a gradient it builds
    `@block.forward` (the block's results, then saved values) and `@block.backward` (saved values
    and cotangents of the float results, to cotangents of the arguments that need one). Cotangents
    of a value with several uses are added in the reverse order of the uses.

    `recompute` selects what a block saves. Gradients are bitwise equal under every policy: a
    recomputed value is the same op on the same operands.

    Before:
    ```mlir
    func.func private @layer(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>)
      -> tensor<4x8xf32> attributes {graph.block} {
      %y = graph.einsum "mk,kn->mn" %x, %w : ...
      %z = graph.gelu %y erf : tensor<4x8xf32>
      return %z : tensor<4x8xf32>
    }
    ```
    After, in addition:
    ```mlir
    func.func private @layer.forward(%x, %w) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
      ...
      return %z, %y
    }
    func.func private @layer.backward(%x, %w, %y, %dz) -> (tensor<4x8xf32>, tensor<8x8xf32>) {
      %dy = graph.gelu_grad %y, %dz erf : tensor<4x8xf32>
      %dx = graph.einsum "mn,kn->mk" %dy, %w : ...
      %dw = graph.einsum "mk,mn->kn" %x, %dy : ...
      return %dx, %dw
    }
    ```

    `@gradients` takes the arguments of `@loss` and the cotangent of the loss. It returns the loss
    and one gradient for each parameter, in the order of the parameters.

    Afterwards `@gradients` exists and calls only `.forward` and `.backward` functions of blocks on
    the path of a gradient. `@loss` is unchanged.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"recompute", "recompute", "::tessera::recipe::Recompute",
      "::tessera::recipe::Recompute::None", "What a block recomputes in its backward function",
      [{::llvm::cl::values(
        clEnumValN(::tessera::recipe::Recompute::None, "none",
                   "only free values: views, constants, upcasts"),
        clEnumValN(::tessera::recipe::Recompute::Selective, "selective",
                   "all but contractions and attention with their epilogues"),
        clEnumValN(::tessera::recipe::Recompute::Full, "full",
                   "everything; a block saves only its arguments"))}]>];
}

def BuildTrainStep : Pass<"build-train-step", "::mlir::ModuleOp"> {
  let summary = "builds @train_step from @gradients: accumulation, clipping, learning-rate "
                "schedule, optimizer";
  let description = [{
    A training step is one program. State is an argument and a result with the same `graph.state`
    name. The host reads four metrics and does not control the step in between.

    - N counts the targets that are not `ignore` over all microbatches. The cotangent of each
      microbatch's loss sum is 1/N (0 if N is 0): accumulating microbatches equals one large batch.
    - Gradients are added in f32 over a `graph.loop`; a single microbatch needs no loop.
      The bf16 copies of the weights are made once, before the loop.
    - Gradients are scaled by min(1, clip / (norm + 1e-6)) with their global norm in f32; with a
      clip of 0 they are not scaled.
    - Other sums that `@loss` returns have the cotangent 1 / (tokens of the step, masked or not).
    - A model may have functions that are inlined here: `@prepare_step`, called for every microbatch
      before the first gradient, returns sums that `@loss` takes as inputs; `@finish_step` computes
      metrics and the next values of parameters with `graph.frozen`, which have no gradient, from
      sums that `@loss` returns as `graph.metric`.
    - The learning rate follows from `step` (0 before the first step) and the schedule; the
      optimizer's formulas are those of `torch.optim.AdamW` and `torch.optim.SGD`. Weight decay
      applies to parameters with `graph.decay`.

    Hyperparameters are read from the state tensor `hyper` at run time; `@init` writes the options
    `lr` to `min-ratio` there. `@init` also returns zero moments and a zero step.

    After:
    ```mlir
    func.func @train_step(%w: tensor<8x8xf32> {graph.state = "w", ...},
      %m: ... {graph.state = "w.exp_avg"}, ...,
        %step: tensor<1xi64> {graph.state = "step"}, %hyper: tensor<16xf32> {graph.state = "hyper"},
        %tokens: tensor<4x2x64xi32> {graph.input = "tokens"}, %targets: ..., %seed: tensor<1xi64>)
      -> (tensor<8x8xf32> {graph.state = "w"}, ..., tensor<f32> {graph.output = "loss"},
          tensor<f32> {graph.output = "grad_norm"}, tensor<f32> {graph.output = "lr"},
          tensor<i64> {graph.output = "tokens"})
    ```
    Afterwards `@gradients` is removed.

    With `separate` a step is two programs. `@forward_backward` takes a batch and adds the gradients
    of the sum of its losses to the state `<parameter>.gradient`. `@optimizer_step` multiplies these
    by its input `scale`, clips and updates as above, and sets them to zero. `@init_trained` is
    `@init` without parameters that are frozen, so that several models are trained over the same
    frozen weights, one after the other.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"optimizer", "optimizer", "::tessera::recipe::OptimizerKind",
      "::tessera::recipe::OptimizerKind::AdamW",
      "The update rule", [{::llvm::cl::values(
        clEnumValN(::tessera::recipe::OptimizerKind::AdamW, "adamw",
                   "Adam with decoupled weight decay"),
        clEnumValN(::tessera::recipe::OptimizerKind::Sgd, "sgd", "stochastic gradient descent"))}]>,
    Option<"schedule", "schedule", "::tessera::recipe::ScheduleKind",
      "::tessera::recipe::ScheduleKind::Cosine",
      "The learning rate after warmup", [{::llvm::cl::values(
        clEnumValN(::tessera::recipe::ScheduleKind::Cosine, "cosine",
                   "half a cosine down to min-ratio"),
        clEnumValN(::tessera::recipe::ScheduleKind::Linear, "linear", "a line down to min-ratio"),
        clEnumValN(::tessera::recipe::ScheduleKind::Constant, "constant", "constant at lr"))}]>,
    Option<"accumulate", "accumulate", "int64_t", "1", "Microbatches in a step">,
    Option<"lr", "lr", "double", "3.0e-4", "Peak learning rate">,
    Option<"beta1", "beta1", "double", "0.9", "AdamW's decay of the first moment">,
    Option<"beta2", "beta2", "double", "0.95", "AdamW's decay of the second moment">,
    Option<"eps", "eps", "double", "1.0e-8", "Added to the root of AdamW's second moment">,
    Option<"weightDecay", "weight-decay", "double", "0.1", "Weight decay">,
    Option<"clip", "clip", "double", "1.0", "Bound of the global gradient norm; 0: none">,
    Option<"momentum", "momentum", "double", "0.0",
      "SGD's momentum; 0 compiles a program without momentum buffers">,
    Option<"warmup", "warmup", "int64_t", "0", "Steps from 0 to lr">,
    Option<"total", "total", "int64_t", "1000", "Step at which lr has fallen to min-ratio">,
    Option<"minRatio", "min-ratio", "double", "0.1",
      "Learning rate at the end, as a fraction of lr">,
    Option<"alwaysLoop", "always-loop", "bool", "false",
      "Build a loop even for a single microbatch: pipeline stages are made from its body">,
    Option<"separate", "separate", "bool", "false",
      "Build @forward_backward, @optimizer_step and @init_trained instead of @train_step">];
}

def SimplifyGradientSums : Pass<"simplify-gradient-sums", "::mlir::ModuleOp"> {
  let summary = "adds gradients of rows and slices in place instead of adding tensors of zeros";
  let description = [{
    The gradient of an embedding changes as many rows as there are tokens, but is a tensor as large
    as the table: zeros, a scatter, and a sum with the gradient from the head or an earlier
    microbatch. The gradients of a fused projection's slices are padded with zeros and added. This
    pass scatters onto the sum, and concatenates the slices. It changes the order in which rows are
    added, in the same way under all recomputation policies.

    Before:
    ```mlir
    %d = graph.scatter_add %rows at %ids onto %zero : tensor<8x16xf32>, tensor<8xi32>,
      tensor<512x16xf32>
    %next = graph.add %sum, %d : tensor<512x16xf32>
    %p = graph.pad %dq low [0, 0] : tensor<8x16xf32> -> tensor<8x32xf32>
    %q = graph.pad %dk low [0, 16] : tensor<8x16xf32> -> tensor<8x32xf32>
    %r = graph.add %p, %q : tensor<8x32xf32>
    ```
    After:
    ```mlir
    %next = graph.scatter_add %rows at %ids onto %sum : tensor<8x16xf32>, tensor<8xi32>,
      tensor<512x16xf32>
    %r = graph.concat %dq, %dk dim 1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x32xf32>
    ```
    Afterwards no sum has an operand that is a scatter without other uses, or two pads that are
    adjacent slices.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect"];
}

def BuildEvalStep : Pass<"build-eval-step", "::mlir::ModuleOp"> {
  let summary = "builds @eval_step from @loss, without dropout and noise";
  let description = [{
    `@eval_step` takes the parameters, `tokens` and `targets` i32[B,T] and returns `loss_sum` f32[]
    and the number of targets that are not ignored, `tokens` i64[]. Blocks with random numbers are
    replaced by `@block.eval`, a copy without them; other blocks are shared. With `microbatches` =
    A > 1 it is a loop over them: `tokens` and `targets` are i32[A,B,T], `loss_sum` f32[A]. What a
    value head gives (`values` of `@loss`, f32[B,T]) is returned as well unless it is a loop.

    Before:
    ```mlir
    func.func @loss(%w: ..., %tokens, %targets, %seed, %step, %offset) -> tensor<f32> {
      %h = call @layer(%x, %w, %seed, %step, %offset) : ...
    ```
    After:
    ```mlir
    func.func @eval_step(%w: ..., %tokens, %targets) -> (tensor<f32> {graph.output = "loss_sum"},
      tensor<i64> {graph.output = "tokens"}) {
      %h = call @layer.eval(%x, %w, %zero, %zero, %zero) : ...
    ```
    Afterwards `@loss` is removed.
  }];
  let dependentDialects = ["::tessera::graph::GraphDialect", "::mlir::func::FuncDialect"];
  let options = [
    Option<"microbatches", "microbatches", "int64_t", "1",
      "Microbatches that the program takes: a pipeline computes several at a time">];
}

def VerifyStepProgram : Pass<"verify-step-program", "::mlir::ModuleOp"> {
  let summary = "verifies that the module has complete step programs";
  let description = [{
    Ends the phase. It is an error unless
    - `@init` and `@train_step` exist, and neither `@loss` nor `@gradients` does;
    - state of one name has one type and one role in all functions;
    - `@train_step` returns every parameter, every optimizer state and `step` that it takes;
    - `@init` returns every state tensor that any program takes;
    - a program that returns a state tensor also takes it (except `@init`), and names are distinct;
    - `@train_step` returns `loss`, `grad_norm`, `lr` (f32) and `tokens` (i64), and nothing else in
      addition to state.

    Without `training` there is no `@train_step`, but at least one program in addition to `@init`.
    Caches, which only inference has, need no initial value, and a program returns every cache that
    it takes.
  }];
  let options = [Option<"training", "training", "bool", "true",
  "Whether the programs train a model">];
}

#endif
