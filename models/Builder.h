// Building blocks shared by the builders of all families.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

#include "dialects/graph/Build.h"
#include "models/ModelSpec.h"
#include "models/Recipe.h"

namespace tessera::models {

/// Properties by which layers differ; layers of equal kind share a block.
struct LayerKind {
  int64_t window = 0;     ///< tokens; 0: the whole past
  double scale = 1.0;     ///< of attention scores
  bool sparse = false;    ///< experts instead of an MLP
  bool local = false;     ///< rotates queries and keys by spec.localRope
  bool rotates = true;    ///< whether queries and keys are rotated at all
  bool recurrent = false; ///< a mixer instead of attention
  bool operator==(const LayerKind &) const = default;
};

/// The state of random numbers; null values without dropout.
struct RandomState {
  mlir::Value seed;   ///< i64[], one per layer
  mlir::Value step;   ///< i64[]
  mlir::Value offset; ///< i64[], index of the microbatch's first sequence
};

/// One layer's KV cache, and the positions of the tokens of this run. All null
/// in a function without a cache.
struct KvCache {
  /// [pages, page, kv_heads, head_dim]; values are null if it holds latents.
  mlir::Value keys, values;
  bool holdsLatents = false; ///< in place of keys and values
  /// [pages, page, kv_heads, 1], if keys and values are int8.
  mlir::Value keyScales, valueScales;
  mlir::Value positions; ///< i32 [batch, tokens]
  mlir::Value slots;     ///< i32 [batch, tokens]: page × slot, −1: not stored
  mlir::Value table;     ///< i32 [batch, pages of a sequence]
  mlir::Value starts, lengths; ///< i32 [batch], as in graph.paged_attention
  /// The `starts` of attention, after all keys where tokens see each other.
  mlir::Value queryStarts;
  int64_t context = 0; ///< maximum tokens of a sequence
  bool f32 = false;    ///< attention multiplies as a training step does
  /// Of a recurrent layer, for each slot of a sequence: the last inputs of its
  /// convolution, [slots, kernel - 1, channels], and its states, [slots, heads,
  /// head_dim, state].
  mlir::Value inputs, states;
  mlir::Value sequences; ///< i32 [batch]: slots of these; −1: padding
};

/// The adapters of the rows of a run: those of slot s are rows [offsets[s],
/// offsets[s + 1]), those after offsets[slots] have none. Null without slots.
struct RowAdapters {
  mlir::Value offsets; ///< i32 [slots + 1]
};

/// The documents that sequences of training consist of. Null if all tokens of a
/// sequence see each other.
struct Documents {
  mlir::Value first; ///< i32 [batch, tokens]: where a token's document begins
  mlir::Value positions; ///< i32 [batch, tokens]: of a token in its document
  /// i32 [batch, tokens]: where the prompt of a token's document ends, whose
  /// tokens see each other; -1: nowhere. Null: prompts are causal.
  mlir::Value promptEnds;

  /// Those that are there, as a layer's function takes them.
  llvm::SmallVector<mlir::Value> all() const;
};

/// Whole sequences, padded at their ends. Each token of an encoder attends to
/// all tokens of its sequence. Null in a function of a decoder, unless it gives
/// scores.
struct WholeSequences {
  mlir::Value lengths; ///< i32 [batch]
  int64_t page = 0;    ///< keys per step of an encoder's attention
  bool isCausal = false;
  int64_t context = 0; ///< maximum tokens of a sequence of any program
};

/// The inputs of the linear layers of a block, each once, by the path of the
/// first module that reads it.
using LinearInputs = llvm::SmallVector<std::pair<std::string, mlir::Value>>;

/// Requests of training to a layer's router, and its results. Absent in a
/// function that only computes logits; then no choice is dropped.
struct RouterScope {
  const recipe::Recipe::Moe &recipe;
  /// Choices of each expert among `loadTokens` tokens, f32 [experts], if the
  /// balance loss covers more tokens than this function; else null.
  mlir::Value load;
  int64_t loadTokens = 0;
  bool countsOnly = false;

  // Results of the layer.
  mlir::Value penalty = {}; ///< f32[]: to be added to the loss; null: nothing
  mlir::Value counts = {};  ///< f32 [experts]: choices before any are dropped
  mlir::Value sums = {};    ///< f32 [routerSums] (models/moe/Routing.h)
};

/// A function whose body is being built: its parameters by name, emitters by
/// module path, and optional inputs.
class Scope {
public:
  Scope(mlir::OpBuilder &builder, const ModelSpec &spec, RandomState random)
      : builder(builder), spec(spec), random(random) {}

  /// Where tokens are in their sequences or documents, i32 [batch, tokens];
  /// null: at their indices.
  mlir::Value positions() const {
    return cache ? cache->positions : documents.positions;
  }

  void define(llvm::StringRef name, mlir::Value value) { values[name] = value; }
  /// A parameter by its checkpoint name (in a block: without the layer's
  /// prefix).
  mlir::Value parameter(const llvm::Twine &name) const;

  /// Emits operations that are located at the module `path`.
  graph::Emitter at(llvm::StringRef path) const;

  /// Whether there are random numbers, and dropout applies; not in @logits.
  bool drops() const { return bool(random.seed); }
  /// Drops elements of `x` at `rate`; `site` distinguishes the uses in one
  /// scope.
  mlir::Value dropout(graph::Emitter &e, mlir::Value x, double rate,
                      int64_t site) const;
  /// Normal numbers, as many as in [batch, …]; only where drops().
  mlir::Value noise(graph::Emitter &e, llvm::ArrayRef<int64_t> shape,
                    int64_t site) const;
  /// Maximum tokens of a sequence of programs like this one, of which one takes
  /// `tokens`.
  int64_t context(int64_t tokens) const {
    return cache ? cache->context : whole ? whole->context : tokens;
  }
  /// The step of training, i64[]; null unless drops().
  mlir::Value step() const { return random.step; }

  mlir::OpBuilder &builder;
  const ModelSpec &spec;
  /// Null in a function without a KV cache. `attention` appends keys and values
  /// and replaces the values here by the updated cache.
  KvCache *cache = nullptr;
  const WholeSequences *whole = nullptr; ///< for an encoder
  /// Where the second text of each sequence begins, i32 [batch]; null: a
  /// sequence is one text.
  mlir::Value secondBegins = {};
  Documents documents = {};
  RowAdapters adapters = {};
  RouterScope *router = nullptr;  ///< of the current layer
  LinearInputs *inputs = nullptr; ///< filled for @calibrate

private:
  RandomState random;
  llvm::StringMap<mlir::Value> values;
};

/// Builds a family's graph ops. All activations are [batch, tokens, hidden].
struct FamilyBuilder {
  /// tokens i32[batch, tokens] → activations.
  mlir::Value (*embed)(const Scope &, mlir::Value tokens);
  /// One layer; parameters without the layer's prefix.
  mlir::Value (*layer)(const Scope &, mlir::Value x, const LayerKind &kind);
  /// The final norm, between the last layer and the head.
  mlir::Value (*finish)(const Scope &, mlir::Value x);
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
/// The matrices of an MLP. Without a gate: down(activation(up x)). With one:
/// down(activation(gate x) × up x); `gateUp` is gate and up as one matrix, or
/// empty.
struct MlpNames {
  std::string gate, up, gateUp, down;
};
mlir::Value mlp(const Scope &scope, mlir::Value x, const MlpNames &names,
                bool bias);
/// Columns [begin, begin + count) of x [batch, tokens, width].
mlir::Value columns(graph::Emitter &e, mlir::Value x, int64_t begin,
                    int64_t count);
/// The RMS norm along the last dimension.
mlir::Value rmsNorm(const Scope &scope, mlir::Value x, llvm::StringRef name);
/// The norm of the spec's kind, along the last dimension.
mlir::Value norm(const Scope &scope, mlir::Value x, llvm::StringRef name);
mlir::Value activation(graph::Emitter &e, mlir::Value x, Activation kind);
/// Causal attention, over the scope's KV cache if there is one; bidirectional
/// attention over whole sequences in an encoder. query [batch, tokens, heads,
/// head_dim], key and value with kv_heads → [batch, tokens, heads * head_dim].
/// With attention dropout the probabilities are materialized.
mlir::Value attention(const Scope &scope, mlir::Value query, mlir::Value key,
                      mlir::Value value, const LayerKind &kind,
                      llvm::StringRef path);
/// The same, but heads are not merged: [batch, tokens, heads, head_dim].
/// Without a value the keys of the cache are the values, too.
mlir::Value attentionHeads(const Scope &scope, mlir::Value query,
                           mlir::Value key, mlir::Value value,
                           const LayerKind &kind, llvm::StringRef path);

} // namespace tessera::models
