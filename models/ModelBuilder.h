// Builds the functions of a model's module: for training in Build.cpp,
// inference in BuildInference.cpp, embedding in BuildEncoder.cpp and
// calibration in BuildCalibrate.cpp.
#pragma once
#include "models/Build.h"
#include "models/Builder.h"

namespace tessera::models {

// Values that @loss passes to @finish_step, and @prepare_step to @loss.
inline constexpr const char *routerLoads = "router_loads";
inline constexpr const char *routerSumsName = "router_sums";
inline constexpr const char *taskSumsName = "task_sums";
inline constexpr const char *advantageSumsName = "advantage_sums";

/// One argument or result of a function: type and graph attributes.
struct Port {
  mlir::Type type;
  llvm::SmallVector<mlir::NamedAttribute> attributes;
  std::string name;
};

/// The arguments of @loss that hold a batch: [sequences, tokens], and scalars
/// of random numbers. Null where the recipe needs none.
struct BatchValues {
  mlir::Value tokens, targets;
  RandomState random;
  mlir::Value documentStarts, documentNumbers, reference, behavior, advantages;
  mlir::Value rewards, values; ///< for advantages that are estimated
  mlir::Value documentLabels;
  mlir::Value teacherTokens, teacherLogProbs; ///< [sequences, tokens, classes]
};

/// A tensor of a layer's cache.
struct CachePart {
  const char *name;
  mlir::Value KvCache::*value;
  bool ofValues = false, isScales = false;
};

class ModelBuilder {
public:
  ModelBuilder(mlir::MLIRContext &context, const ModelSpec &model,
               const Recipe &recipe)
      : b(&context), module(mlir::ModuleOp::create(named("model"))),
        recipe(recipe), spec(withRecipe(model, recipe)), all(parameters(spec)),
        family(spec.family == Family::Gpt2   ? gpt2Builder()
               : spec.family == Family::Bert ? bertBuilder()
                                             : llamaBuilder()) {
    for (LayerParts parts : spec.kindsOfLayers())
      layersOfKinds.emplace_back(parts, layerParameters(spec, parts));
  }

  /// The functions of `mode`, as Build.h lists them.
  mlir::OwningOpRef<mlir::ModuleOp> build(Mode mode);

private:
  // Types and ports.
  mlir::Location named(const llvm::Twine &name) {
    return mlir::NameLoc::get(b.getStringAttr(name));
  }
  mlir::RankedTensorType tensor(llvm::ArrayRef<int64_t> shape,
                                mlir::Type element) {
    return mlir::RankedTensorType::get(shape, element);
  }
  mlir::RankedTensorType scalar(mlir::Type element) {
    return tensor({}, element);
  }
  Port parameterPort(const Parameter &parameter);
  Port port(llvm::StringRef attribute, llvm::StringRef name, mlir::Type type);
  mlir::func::FuncOp function(llvm::StringRef name,
                              llvm::ArrayRef<Port> arguments,
                              llvm::ArrayRef<Port> results);
  /// The public function of a kind, and of a bucket ("_8") if it has several.
  mlir::func::FuncOp program(graph::Program kind,
                             llvm::ArrayRef<Port> arguments,
                             llvm::ArrayRef<Port> results,
                             llvm::StringRef bucket = {});
  void addLayer(Port &port, int64_t layer);
  mlir::func::CallOp callLayer(int64_t layer, mlir::func::FuncOp block,
                               mlir::ValueRange operands);

  // The functions.
  void buildLoss();
  void buildLogits();
  void buildInit();
  /// The parameters of a program, its first arguments, in the type that they
  /// are computed with.
  void defineParameters(Scope &scope, mlir::func::FuncOp program);
  void buildPrepareStep();
  void buildFinishStep();
  void finishRouters(graph::Emitter &e, mlir::ValueRange inputs,
                     llvm::SmallVectorImpl<mlir::Value> &returned);

  /// The purpose of running the layers. Loads (computed alone, before a loss)
  /// exist only with experts.
  enum class Purpose { Logits, Loss, Loads };
  std::string blockName(const llvm::Twine &base, const LayerKind &kind) const;
  mlir::func::FuncOp newBlock(llvm::StringRef name, const LayerKind &kind,
                              llvm::ArrayRef<int64_t> shape,
                              llvm::ArrayRef<Port> more,
                              llvm::ArrayRef<Port> moreResults);
  /// Parameters of one layer.
  const std::vector<Parameter> &ofLayer(const LayerKind &kind) const {
    const LayerParts parts{kind.sparse, kind.recurrent};
    return llvm::find_if(layersOfKinds,
                         [&](const auto &each) { return each.first == parts; })
        ->second;
  }
  void defineLayer(Scope &scope, const LayerKind &kind,
                   mlir::func::FuncOp block) const;
  mlir::func::FuncOp block(const LayerKind &kind, llvm::ArrayRef<int64_t> shape,
                           Purpose purpose);
  mlir::func::FuncOp startBlock(llvm::StringRef name, const LayerKind &kind,
                                llvm::ArrayRef<int64_t> shape, Purpose purpose,
                                bool dropping);
  mlir::Value initial(graph::Emitter &e, const Parameter &parameter,
                      mlir::Value seed, mlir::Value step);

  // Functions over a cache (BuildInference.cpp).
  struct CacheShape {
    int64_t batch, tokens;
    int64_t context; ///< maximum tokens of a sequence
    int64_t pages;   ///< of the KV cache
  };
  void buildInference();
  void buildCached(graph::Program kind, llvm::StringRef bucket,
                   const CacheShape &shape);
  mlir::func::FuncOp cachedBlock(llvm::StringRef owner, const LayerKind &kind,
                                 const CacheShape &shape);
  bool hasScales() const { return recipe.inference.kv == KvKind::Int8; }
  /// Whether the cache holds latents instead of keys and values.
  bool cachesLatents() const;
  /// What a layer's cache consists of. Latents are keys and values.
  std::vector<CachePart> cacheParts(const LayerKind &kind) const;
  /// The same, with types.
  std::vector<Port> layerCaches(const LayerKind &kind, const CacheShape &shape);
  std::vector<Port> cachePorts(const CacheShape &shape);
  std::vector<Port> cacheInputs(const CacheShape &shape);
  std::vector<Port> choiceInputs(int64_t batch);
  /// The offsets of the rows of each slot, if there are slots for adapters.
  std::vector<Port> adapterInputs();
  mlir::Value cachedTrunk(Scope &scope, llvm::StringRef owner,
                          const CacheShape &shape, mlir::Value tokens,
                          llvm::MutableArrayRef<mlir::Value> caches);

  // Inputs of linear layers (BuildCalibrate.cpp).
  void buildCalibrate();
  mlir::func::FuncOp calibratedBlock(const LayerKind &kind, int64_t tokens,
                                     llvm::ArrayRef<std::string> &modules);
  /// Of the blocks, by their names.
  llvm::StringMap<llvm::SmallVector<std::string>> measured;

  // Functions over whole sequences (BuildEncoder.cpp).
  void buildEncoder();
  void buildEmbed(const EncodeBucket &bucket);
  mlir::func::FuncOp encoderBlock(llvm::StringRef owner, const LayerKind &kind,
                                  const EncodeBucket &bucket);
  mlir::Value wholeTrunk(Scope &scope, llvm::StringRef owner,
                         const EncodeBucket &bucket, mlir::Value tokens,
                         mlir::Value lengths);
  mlir::Value pooled(graph::Emitter &e, mlir::Value x, mlir::Value lengths);

  // Pieces of @loss and @logits.
  std::vector<Port> parameterPorts();
  /// For sequences of at most `tokens`.
  LayerKind kindOf(int64_t layer, int64_t tokens) const;
  /// Whether training takes random numbers, or knows its step.
  bool drops() const {
    return spec.embeddingDropout > 0 || spec.attentionDropout > 0 ||
           spec.residualDropout > 0 ||
           (spec.adapter && spec.adapter->recipe.dropout > 0) ||
           (spec.moe && (recipe.moe.noise > 0 || recipe.moe.balanceWarmup > 0));
  }
  /// Results of routers, layer by layer.
  struct Routed {
    llvm::SmallVector<mlir::Value> penalties, counts, sums;
  };
  mlir::Value trunk(Scope &scope, mlir::Value tokens, RandomState random,
                    Purpose purpose, mlir::Value loads, Routed &routed);
  /// Rows [layers with experts, …] with the results of each layer.
  mlir::Value stacked(graph::Emitter &e, llvm::ArrayRef<mlir::Value> rows);
  /// Whether the balance loss covers more tokens than one @loss.
  bool needsLoads() const {
    return spec.moe && recipe.batch.accumulate > 1 &&
           recipe.moe.balance == recipe::BalanceScope::Global &&
           recipe.moe.balanceWeight > 0;
  }
  /// Whether advantages are whitened, over those of one @loss and others.
  bool whitens() const {
    return isGae() && recipe.policy.gae.whiten == recipe::Whitening::Step;
  }
  bool hasPenalty() const {
    return spec.moe && (recipe.moe.balanceWeight > 0 || recipe.moe.zWeight > 0);
  }
  /// f32 [layers with experts, columns].
  mlir::RankedTensorType routerType(int64_t columns) {
    return tensor({spec.moe->sparseLayers(), columns}, b.getF32Type());
  }
  /// Whether tokens of a sequence see only those of their document.
  bool separates() const {
    return recipe.data.documents == recipe::Documents::Separate;
  }
  /// Whether the tokens of a document's prompt see each other.
  bool hasBidirectionalPrompts() const {
    return recipe.attention.prompts == recipe::Prompts::Bidirectional;
  }
  /// Whether a function over a KV cache reads such prompts.
  bool prefillsPrompts(const CacheShape &shape) const {
    return hasBidirectionalPrompts() && shape.tokens > 1;
  }
  std::vector<Port> batchPorts();
  std::vector<Port> lossResults();
  /// The values of these ports, from the front of `inputs`, which loses them.
  BatchValues takeBatch(mlir::ValueRange &inputs) const;
  Documents documentsOf(Scope &scope, const BatchValues &batch);
  /// The head and its loss, summed or of each target: [sequences, tokens] or
  /// with several a token. Logits are divided by the temperature.
  mlir::Value headLoss(Scope &scope, mlir::Value x, mlir::Value targets,
                       bool isSum, double temperature = 1);

  // Losses that are computed from those of tokens, and what is reported of
  // them (BuildTask.cpp).
  bool hasPairs() const { return recipe::hasPairs(recipe.task); }
  bool isPolicy() const { return recipe.task == recipe::Task::Policy; }
  bool isGae() const { return spec.hasValue; }
  bool isKto() const { return recipe.task == recipe::Task::Kto; }
  bool isReward() const { return recipe.task == recipe::Task::Reward; }
  bool isDistill() const { return recipe.task == recipe::Task::Distill; }
  bool isOfTokens() const { return recipe.task == recipe::Task::Sft; }
  bool hasReference() const;
  bool takesDocumentNumbers() const;
  /// 0: the loss is a mean over tokens.
  int64_t documentsPerTerm() const;
  struct TaskLoss {
    mlir::Value loss;        ///< f32 []: summed over terms
    mlir::Value sums;        ///< f32 [2, columns]: of each a count and a sum
    mlir::Value values = {}; ///< of tokens, f32 [sequences, tokens]; null: none
  };
  /// From the last activations, [sequences, tokens, hidden].
  TaskLoss taskLoss(Scope &scope, graph::Emitter &e, const BatchValues &batch,
                    mlir::Value x, mlir::Value advantageSums);
  // From the losses of tokens, or their scores, f32 [sequences, tokens].
  TaskLoss pairLoss(graph::Emitter &e, const BatchValues &batch,
                    mlir::Value losses); // BuildPreference.cpp
  /// `x`: the last activations, [sequences, tokens, hidden]; `advantageSums`
  /// are those of the step, or null.
  TaskLoss policyLoss(Scope &scope, graph::Emitter &e, const BatchValues &batch,
                      mlir::Value losses, mlir::Value x,
                      mlir::Value advantageSums); // BuildPolicy.cpp
  /// What the value head gives, f32 [sequences, tokens].
  mlir::Value tokenValues(Scope &scope, mlir::Value x); // BuildAdvantages.cpp
  /// f32 [3]: of the learned tokens of a batch the number, and the sums of
  /// their advantages and of the squares.
  mlir::Value advantageSums(graph::Emitter &e, const BatchValues &batch);
  mlir::RankedTensorType advantageSumsType();
  TaskLoss ktoLoss(graph::Emitter &e, const BatchValues &batch,
                   mlir::Value losses); // BuildKto.cpp
  TaskLoss rewardLoss(graph::Emitter &e, const BatchValues &batch,
                      mlir::Value scores); // BuildReward.cpp
  /// From the last activations, [sequences, tokens, hidden]
  /// (BuildDistill.cpp).
  TaskLoss distillLoss(Scope &scope, mlir::Value x, const BatchValues &batch);
  std::pair<mlir::Value, mlir::Value> distillHead(Scope &scope, mlir::Value x,
                                                  const BatchValues &batch);
  /// What the head gives for each row of x: [rows, hidden] → f32 [rows].
  mlir::Value scores(Scope &scope, mlir::Value x);
  mlir::Value lastScores(Scope &scope, mlir::Value x, mlir::Value lengths);
  /// An output of @train_step with means of columns.
  struct TaskMetrics {
    const char *output;
    int64_t columns;
  };
  TaskMetrics taskMetrics() const;
  mlir::RankedTensorType taskSumsType() {
    return tensor({2, taskMetrics().columns}, b.getF32Type());
  }
  /// Values, of which those with `isPresent` count.
  struct Column {
    mlir::Value values, isPresent;
  };
  static mlir::Value columnSums(graph::Emitter &e,
                                llvm::ArrayRef<Column> columns);
  static mlir::Value columnSums(graph::Emitter &e, mlir::Value isPresent,
                                llvm::ArrayRef<mlir::Value> columns);
  mlir::Value columnMeans(graph::Emitter &e, mlir::Value sums);
  /// The output of @train_step, from the sums of all microbatches.
  mlir::Value taskTable(graph::Emitter &e, mlir::Value sums);
  graph::LayerAttr layerAttr(int64_t layer);
  mlir::Value layerSeed(graph::Emitter &e, mlir::Value seeds, int64_t layer);
  mlir::Value seedRows(graph::Emitter &e, mlir::Value seed, int64_t count,
                       int64_t first);
  mlir::Value head(const Scope &scope) {
    const ModuleNames names = moduleNames(spec);
    const std::string_view name =
        spec.tieWordEmbeddings ? names.embedding : names.head;
    return scope.parameter(llvm::Twine(name) + ".weight");
  }

  mlir::OpBuilder b;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  const Recipe &recipe;
  const ModelSpec spec;
  const std::vector<Parameter> all;
  /// Of a layer of each kind.
  std::vector<std::pair<LayerParts, std::vector<Parameter>>> layersOfKinds;
  const FamilyBuilder &family;
};

} // namespace tessera::models
