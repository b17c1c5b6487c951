#include "test/passes/sharding/RandomModels.h"
#include "test/models/ConfigFixture.h"

using namespace mlir;
using nlohmann::json;

namespace tessera::testing {

namespace {
class Draw {
public:
  explicit Draw(uint64_t seed) : engine(seed * 0x9E3779B97F4A7C15 + 1) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine() %
                                      static_cast<uint64_t>(high - low + 1));
  }
  bool chance() { return engine() % 2 == 0; }
  template <typename T> T oneOf(std::initializer_list<T> choices) {
    return choices.begin()[between(0, choices.size() - 1)];
  }

private:
  std::mt19937_64 engine;
};
} // namespace

// Heads and widths that rarely divide by the mesh.
static json drawConfig(Draw &draw) {
  int64_t heads = draw.between(2, 6), width = 2 * draw.between(1, 2);
  bool tied = draw.chance();
  if (draw.chance())
    return {{"model_type", "gpt2"},
            {"vocab_size", draw.between(11, 26)},
            {"n_positions", 8},
            {"n_embd", heads * width},
            {"n_layer", draw.between(1, 2)},
            {"n_head", heads},
            {"n_inner", draw.between(5, 14)},
            {"tie_word_embeddings", tied}};
  int64_t kvHeads = draw.between(1, 3);
  std::string type = draw.oneOf({"llama", "mistral", "qwen2", "qwen3"});
  return {{"model_type", type},
          {"vocab_size", draw.between(11, 26)},
          {"hidden_size", 2 * draw.between(3, 8)},
          {"intermediate_size", draw.between(5, 14)},
          {"num_hidden_layers", draw.between(1, 2)},
          {"num_attention_heads", kvHeads * draw.between(1, 3)},
          {"num_key_value_heads", kvHeads},
          {"head_dim", width},
          {"sliding_window", type == "mistral" ? json(3) : json(nullptr)},
          {"max_position_embeddings", 8},
          {"rope_theta", 100.0},
          {"tie_word_embeddings", tied}};
}

// Experts of all kinds; the configs of test/models at other sizes.
static json drawExperts(Draw &draw, models::Recipe &recipe) {
  const char *type = draw.oneOf({"mixtral", "qwen2_moe", "qwen3_moe", "dots1"});
  json config = models::smallConfig(type);
  config.update({{"vocab_size", draw.between(11, 26)},
                 {"hidden_size", 2 * draw.between(3, 6)},
                 {"intermediate_size", draw.between(5, 10)},
                 {"num_hidden_layers", draw.between(1, 2)},
                 {"num_attention_heads", 4},
                 {"head_dim", 4},
                 {"max_position_embeddings", 8}});
  if (config.contains("moe_intermediate_size"))
    config["moe_intermediate_size"] = draw.between(3, 8);
  if (config.contains("first_k_dense_replace"))
    config["first_k_dense_replace"] = 0;
  recipe.moe.balance = draw.oneOf({recipe::BalanceScope::Sequence,
                                   recipe::BalanceScope::Microbatch,
                                   recipe::BalanceScope::Global});
  recipe.moe.balanceWeight = draw.oneOf({0.0, 0.1});
  recipe.moe.zWeight = draw.oneOf({0.0, 0.1});
  recipe.moe.capacity = draw.oneOf({0.0, 0.0, 0.8, 1.25});
  return config;
}

// An axis of experts has at most as many devices as there are experts.
static void drawMesh(Draw &draw, ModelCase &drawn, bool hasExperts) {
  int64_t devices = 0;
  do {
    drawn.data = draw.between(1, 4);
    drawn.expert = hasExperts ? draw.between(1, 3) : 1;
    drawn.tensor = draw.between(1, hasExperts ? 2 : 4);
    devices = drawn.data * drawn.expert * drawn.tensor;
  } while (devices < 2 || devices > 8);
  drawn.zero = draw.between(0, 3);
}

ModelCase ModelCase::draw(uint64_t seed) {
  Draw draw(seed);
  ModelCase drawn;
  models::Recipe &recipe = drawn.recipe;
  bool hasExperts = draw.between(0, 2) == 0;
  drawn.config = hasExperts ? drawExperts(draw, recipe) : drawConfig(draw);
  drawMesh(draw, drawn, hasExperts);
  recipe.dropout.rate = hasExperts ? 0.0 : draw.oneOf({0.0, 0.0, 0.25});
  recipe.batch.micro = draw.between(1, 6);
  recipe.batch.accumulate = draw.between(1, 3);
  recipe.batch.sequence = draw.between(3, 8);
  recipe.recompute =
      draw.oneOf({models::Recompute::None, models::Recompute::Selective,
                  models::Recompute::Full});
  recipe.optimizer.name = draw.between(0, 3) ? models::OptimizerKind::AdamW
                                             : models::OptimizerKind::Sgd;
  recipe.optimizer.momentum = draw.chance() ? 0.9 : 0.0;
  recipe.optimizer.lr = 0.01;
  recipe.optimizer.clip = draw.oneOf({0.0, 0.5});
  drawn.context =
      draw.between(1, std::min(recipe.batch.sequence,
                               8 / (drawn.data * drawn.expert * drawn.tensor)));
  // Last, so that a seed's other draws are what they were.
  recipe.moe.drop = draw.oneOf(
      {recipe::DropPolicy::Position, recipe::DropPolicy::Probability});
  int64_t devices = drawn.data * drawn.expert * drawn.context * drawn.tensor;
  drawn.replicate = draw.between(1, std::max<int64_t>(1, 8 / devices));
  return drawn;
}

std::string ModelCase::mesh() const {
  return "replicate=" + std::to_string(replicate) +
         ",data=" + std::to_string(data) + ",expert=" + std::to_string(expert) +
         ",context=" + std::to_string(context) +
         ",tensor=" + std::to_string(tensor);
}

std::string ModelCase::text() const {
  return config.dump() + " on " + mesh() + " zero " + std::to_string(zero) +
         ", expert_tensor " + std::to_string(expertTensor) +
         ", expert_context " + std::to_string(expertContext) + ", " +
         std::to_string(recipe.batch.accumulate) + " × " +
         std::to_string(recipe.batch.micro) + " × " +
         std::to_string(recipe.batch.sequence) + " tokens, recompute " +
         std::string(models::name(recipe.recompute)) + ", " +
         std::string(models::name(recipe.optimizer.name)) + ", dropout " +
         std::to_string(recipe.dropout.rate.value_or(0)) + ", capacity " +
         std::to_string(recipe.moe.capacity) + " by " +
         std::string(recipe::name(recipe.moe.drop));
}

OwningOpRef<ModuleOp> compileToPrograms(const ModelCase &drawn) {
  auto spec = models::parseHfConfig(drawn.config.dump(), "config.json");
  if (!spec.ok()) {
    ADD_FAILURE() << spec.message();
    return {};
  }
  auto module = models::buildModel(context(), *spec, drawn.recipe);
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return {};
  }
  runPasses(**module, [&](OpPassManager &pipeline) {
    buildPrecisionPipeline(pipeline, recipe::Precision::Fp32);
    buildAutodiffPipeline(pipeline, AutodiffOptions::fromRecipe(drawn.recipe));
  });
  return std::move(*module);
}

Named randomState(ModuleOp module, uint64_t seed) {
  Named state = runProgram(module, "init", {{"seed", Tensor({1}, 17)}});
  std::mt19937_64 engine(seed);
  std::uniform_real_distribution<double> unit(0, 1);
  auto function = module.lookupSymbol<func::FuncOp>("train_step");
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    auto role = function.getArgAttrOfType<graph::RoleAttr>(i, graph::kRoleAttr);
    if (!role || role.getValue() == graph::Role::counter)
      continue;
    bool isWeight = role.getValue() == graph::Role::parameter;
    for (double &value : state.at(portName(function.getArgAttrDict(i))).data)
      value = isWeight ? value + 0.6 * unit(engine) - 0.3 : 0.1 + unit(engine);
  }
  return state;
}

// A sequence that begins with one token twice gives both the same
// probabilities, and rounding would tell which of them is dropped.
static void separateStarts(std::vector<double> &ids, int64_t length,
                           int64_t vocabulary) {
  for (size_t first = 0; first < ids.size(); first += length)
    if (ids[first + 1] == ids[first])
      ids[first + 1] =
          ids[first] + 1 < static_cast<double>(vocabulary) ? ids[first] + 1 : 0;
}

Named randomBatch(ModuleOp module, StringRef name, int64_t vocabulary,
                  uint64_t seed) {
  std::mt19937_64 engine(seed);
  auto below = [&](int64_t count) {
    return static_cast<double>(engine() % static_cast<uint64_t>(count));
  };
  Named batch{{"seed", Tensor({1}, 5)}};
  auto function = module.lookupSymbol<func::FuncOp>(name);
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    std::string port = portName(function.getArgAttrDict(i));
    if (port != "tokens" && port != "targets")
      continue;
    ArrayRef<int64_t> shape =
        graph::tensorType(function.getArgument(i)).getShape();
    Tensor ids(shape);
    for (double &id : ids.data)
      id = port == "targets" && below(5) == 0 ? -100 : below(vocabulary);
    if (port == "tokens" && shape.back() > 1)
      separateStarts(ids.data, shape.back(), vocabulary);
    batch[port] = std::move(ids);
  }
  return batch;
}

} // namespace tessera::testing
