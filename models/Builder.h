// What the builders of all families are made of.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

#include "dialects/graph/Build.h"
#include "models/ModelSpec.h"
#include "models/Recipe.h"

namespace tessera::models {

/// What makes one layer's block differ from another's.
struct LayerKind {
  int64_t window = 0;  ///< tokens; 0: the whole past
  double scale = 1.0;  ///< of attention scores
  bool sparse = false; ///< experts in place of the MLP
  bool local = false;  ///< turns queries and keys by spec.localRope
  bool operator==(const LayerKind &) const = default;
};

/// Where random numbers come from; null values where nothing is dropped.
struct RandomState {
  mlir::Value seed;   ///< i64[], one a layer
  mlir::Value step;   ///< i64[]
  mlir::Value offset; ///< i64[], index of the microbatch's first sequence
};

/// One layer's keys and values of earlier tokens, and where the tokens of this
/// run stand. In a function without cache all of it is null.
struct KvCache {
  mlir::Value keys, values; ///< [pages, page, kv_heads, head_dim]
  /// [pages, page, kv_heads, 1], where keys and values are int8.
  mlir::Value keyScales, valueScales;
  mlir::Value positions; ///< i32 [batch, tokens]
  mlir::Value slots;     ///< i32 [batch, tokens]: page × slot, −1: nowhere
  mlir::Value table;     ///< i32 [batch, pages of a sequence]
  mlir::Value starts, lengths; ///< i32 [batch], as graph.paged_attention
  int64_t context = 0;         ///< tokens of a sequence at most
};

/// Whole texts, padded at their ends, each token of which sees all of its own
/// text and nothing else. In a function of a decoder it is null.
struct WholeTexts {
  mlir::Value lengths; ///< i32 [batch]
  int64_t page = 0;    ///< keys that attention walks over at a time
};

/// What the linear layers of a block read, each value once, by the path of the
/// first module that does.
using LinearInputs = llvm::SmallVector<std::pair<std::string, mlir::Value>>;

/// What training wants of a layer's router. In a function that only looks at
/// logits there is none, and nothing is dropped.
struct RouterScope {
  const recipe::Recipe::Moe &recipe;
  /// Choices of each expert among `loadTokens` tokens, f32 [experts], where the
  /// balance loss compares more than this function sees; else null.
  mlir::Value load;
  int64_t loadTokens = 0;
  bool countsOnly = false;

  // What the layer leaves here.
  mlir::Value penalty = {}; ///< f32[]: to be added to the loss; null: nothing
  mlir::Value counts = {};  ///< f32 [experts]: choices before any are dropped
  mlir::Value sums = {};    ///< f32 [routerSums] (models/moe/Routing.h)
};

/// A function while its body is written: its parameters by name, emitters by
/// module path, and what the body may depend on.
class Scope {
public:
  Scope(mlir::OpBuilder &builder, const ModelSpec &spec, RandomState random)
      : builder(builder), spec(spec), random(random) {}

  void define(llvm::StringRef name, mlir::Value value) { values[name] = value; }
  /// A parameter by its checkpoint name (in a block: without the layer's
  /// prefix).
  mlir::Value parameter(const llvm::Twine &name) const;

  /// Emits operations that are located at the module `path`.
  graph::Emitter at(llvm::StringRef path) const;

  /// Whether anything random happens here: not in @logits.
  bool drops() const { return bool(random.seed); }
  /// Drops elements of `x` at `rate`; `site` tells the uses in one scope apart.
  mlir::Value dropout(graph::Emitter &e, mlir::Value x, double rate,
                      int64_t site) const;

  mlir::OpBuilder &builder;
  const ModelSpec &spec;
  /// Null unless tokens follow on what a cache holds. `attention` puts its keys
  /// and values into it and leaves here what it has become.
  KvCache *cache = nullptr;
  const WholeTexts *texts = nullptr; ///< of an encoder
  RouterScope *router = nullptr;     ///< of the layer that is written
  LinearInputs *inputs = nullptr;    ///< where they are measured

private:
  RandomState random;
  llvm::StringMap<mlir::Value> values;
};

/// How a family becomes graph ops. All activations are [batch, tokens, hidden].
struct FamilyBuilder {
  /// tokens i32[batch, tokens] → activations.
  mlir::Value (*embed)(const Scope &, mlir::Value tokens);
  /// One layer; parameters without the layer's prefix.
  mlir::Value (*layer)(const Scope &, mlir::Value x, const LayerKind &kind);
  /// What stands between the last layer and the head.
  mlir::Value (*finish)(const Scope &, mlir::Value x);
  const char *embedding; ///< name of the table, which a tied head reads too
};

const FamilyBuilder &gpt2Builder();  // models/gpt2/Build.cpp
const FamilyBuilder &llamaBuilder(); // models/llama/Build.cpp
const FamilyBuilder &bertBuilder();  // models/bert/Build.cpp

// Sub-layers. `name` is the module's name: parameters are NAME.weight and, if
// `bias`, NAME.bias.

/// torch.nn.Linear: weight [out, in].
mlir::Value linear(const Scope &scope, mlir::Value x, llvm::StringRef name,
                   bool bias);
/// transformers' Conv1D: weight [in, out], always with a bias.
mlir::Value conv1d(const Scope &scope, mlir::Value x, llvm::StringRef name);
/// down(activation(gate x) × up x), of modules NAME.gate_proj and so on. Gate
/// and up of an MLP of a spec with fused projections are one module.
mlir::Value gatedMlp(const Scope &scope, mlir::Value x, llvm::StringRef name,
                     bool bias);
/// Columns [begin, begin + count) of x [batch, tokens, width].
mlir::Value columns(graph::Emitter &e, mlir::Value x, int64_t begin,
                    int64_t count);
/// The norm of the spec's kind, along the last dimension.
mlir::Value norm(const Scope &scope, mlir::Value x, llvm::StringRef name);
mlir::Value activation(graph::Emitter &e, mlir::Value x, Activation kind);
/// Causal attention, over the scope's cache if there is one, or that of whole
/// texts in an encoder. query [batch,
/// tokens, heads, head_dim], key and value with kv_heads → [batch, tokens,
/// heads * head_dim]. With attention dropout the probabilities are
/// materialized.
mlir::Value attention(const Scope &scope, mlir::Value query, mlir::Value key,
                      mlir::Value value, const LayerKind &kind,
                      llvm::StringRef path);

} // namespace tessera::models
