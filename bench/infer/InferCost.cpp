#include "bench/infer/InferCost.h"
#include <cmath>
#include <set>

using namespace tessera;

namespace {

bool isTokenTable(const models::ModelSpec &spec, std::string_view name) {
  return name == std::string(models::moduleNames(spec).embedding) + ".weight";
}

/// Embedding tables: a token reads one row.
bool isOnlyGathered(const models::ModelSpec &spec, std::string_view name) {
  return name.ends_with("wpe.weight") ||
         (!spec.tieWordEmbeddings && isTokenTable(spec, name));
}

bool isHead(const models::ModelSpec &spec, std::string_view name) {
  return spec.tieWordEmbeddings
             ? isTokenTable(spec, name)
             : name == std::string(models::moduleNames(spec).head) + ".weight";
}

} // namespace

bench::InferCost tessera::costOf(const models::ModelSpec &spec,
                                 const SessionModel &model,
                                 const DecoderShape &shape, int64_t prompt,
                                 int64_t batch) {
  bench::InferCost cost;
  // A tied table is only gathered if the head has a quantized copy of it.
  std::set<std::string, std::less<>> copied;
  for (const StateTensor &tensor : model.state())
    if (tensor.quantized)
      copied.insert(tensor.quantized->source);
  const auto tokens = double(prompt);
  const double chosen =
      spec.moe ? double(spec.moe->chosen) / double(spec.moe->experts) : 1;
  auto isOfExperts = [&](std::string_view name) {
    return spec.moe && name.find('*') != std::string_view::npos;
  };
  auto shareOf = [&](std::string_view name) {
    return isOfExperts(name) ? chosen : 1.0;
  };
  // Of the experts that a batch reads if its tokens choose independently.
  auto readShareOf = [&](std::string_view name) {
    return isOfExperts(name) ? 1 - std::pow(1 - chosen, double(batch)) : 1.0;
  };
  for (const hal::TensorInfo &tensor : model.get().state()) {
    if (tensor.role == artifact::Role::cache)
      cost.cacheBytes +=
          double(tensor.bytes) / double(shape.pages * shape.page);
    else if (tensor.role == artifact::Role::recurrent)
      cost.stateBytes += double(tensor.bytes) / double(shape.states);
    else if (tensor.role == artifact::Role::parameter &&
             !isOnlyGathered(spec, tensor.name) &&
             !copied.contains(tensor.name))
      cost.weightBytes += double(tensor.bytes) * readShareOf(tensor.name);
  }
  for (const models::Parameter &each : models::parameters(spec))
    if (each.shape.size() > 1 && !isOnlyGathered(spec, each.name))
      cost.promptFlops += 2 * shareOf(each.name) * double(each.elements()) *
                          (isHead(spec, each.name) ? 1 : tokens);
  // Attention scores and their matmul with values, for keys at or before each
  // token.
  for (int64_t layer = 0; layer < spec.layers; ++layer) {
    if (spec.isRecurrent(layer)) { // into the state, and out of it
      const models::StateSpaceSpec &mixer = *spec.stateSpace;
      cost.promptFlops += 4 * tokens * double(mixer.width() * mixer.state);
      continue;
    }
    double seen = tokens * (tokens + 1) / 2;
    if (int64_t window = spec.window(layer); window > 0 && window < prompt)
      seen = double(window) * (tokens - double(window - 1) / 2);
    // Cached latents are multiplied by queries and by probabilities as a whole.
    const int64_t width = spec.latent ? spec.heads * spec.latent->cacheWidth()
                                      : spec.queryWidth();
    cost.promptFlops += 4 * seen * double(width);
  }
  return cost;
}
