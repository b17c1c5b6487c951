// Builds the module that compilation starts from, given a model spec and a
// recipe.
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

#include "models/ModelSpec.h"
#include "models/Recipe.h"

namespace tessera::models {

/// Builds `@init` and, for training, `@loss` and, but of reward models,
/// `@logits` with B = batch.micro and T = batch.sequence; for inference
/// `@prefill_T` for each of prefillBuckets and `@decode_B` for each bucket B up
/// to inference.batch, or for an encoder or a reward model `@embed_BxT` for
/// each of encodeBuckets; for calibration `@calibrate`, which takes tokens [1,
/// T] with T = inference.context and returns, for the input x of each linear
/// layer MODULE, "MODULE.magnitude" and "MODULE.square" [channels]: Σ |x| and Σ
/// x² over the tokens. Layers that share an input have one pair. Also builds
/// their blocks, as dialects/graph/README.md describes them. All is in f32. The
/// recipe's dropout replaces the model's.
///
/// Layers of one kind (the same attention window and scale) share one block. A
/// block's operations are located by their module path inside the layer
/// ("attn"), its calls by the layer ("transformer.h.3").
///
/// `context` must have the func and graph dialects loaded. Errors: the recipe
/// does not fit the model (checkRecipe).
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
buildModel(mlir::MLIRContext &context, const ModelSpec &spec,
           const Recipe &recipe, Mode mode = Mode::Train);

} // namespace tessera::models
