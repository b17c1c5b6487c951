#include "runtime/train/ImportWeights.h"
#include "runtime/support/Floats.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace tessera {
namespace {

constexpr std::string_view kPrefixes[] = {"transformer.", "model."};
constexpr uint64_t kPieceElements = uint64_t(1) << 18;

std::string_view withoutPrefix(std::string_view name) {
  for (std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix))
      return name.substr(prefix.size());
  return name;
}

/// Buffers that older transformers versions saved with the weights, and a head
/// that is the embedding again: no loss if the model has no such tensor.
bool isRedundant(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq") || name == "lm_head.weight";
}

/// `count` elements of `type` at `from` as fp32; the type was checked.
void toFloats(SafetensorsType type, const std::byte *from, std::size_t count,
              float *to) {
  for (std::size_t i = 0; i < count; ++i) {
    uint16_t half = 0;
    double wide = 0;
    switch (type) {
    case SafetensorsType::bf16:
      std::memcpy(&half, from + 2 * i, 2);
      to[i] = bf16ToFloat(half);
      break;
    case SafetensorsType::f16:
      std::memcpy(&half, from + 2 * i, 2);
      to[i] = f16ToFloat(half);
      break;
    case SafetensorsType::f64:
      std::memcpy(&wide, from + 8 * i, 8);
      to[i] = float(wide);
      break;
    default:
      std::memcpy(&to[i], from + 4 * i, 4);
    }
  }
}

bool converts(SafetensorsType from, SafetensorsType to) {
  if (from == to)
    return true;
  return to == SafetensorsType::f32 &&
         (from == SafetensorsType::bf16 || from == SafetensorsType::f16 ||
          from == SafetensorsType::f64);
}

Status checkMatch(const StateTensor &tensor,
                  const SafetensorsModel::Location &source) {
  if (source.entry->shape != tensor.shape)
    return Status::error(
        "'{}' in '{}' has the shape [{}], the model's has [{}]",
        source.entry->name, source.file->path(),
        fmt::join(source.entry->shape, ", "), fmt::join(tensor.shape, ", "));
  if (!converts(source.entry->type, tensor.type))
    return Status::error("'{}' in '{}' is {}, which does not convert to the "
                         "model's {}",
                         source.entry->name, source.file->path(),
                         safetensorsName(source.entry->type),
                         safetensorsName(tensor.type));
  return Status::success();
}

Status copyTensor(TrainModel &model, const StateTensor &tensor,
                  const SafetensorsModel::Location &source) {
  uint64_t from = safetensorsBits(source.entry->type) / 8;
  uint64_t to = safetensorsBits(tensor.type) / 8;
  uint64_t elements = tensor.size / to;
  std::vector<std::byte> read;
  std::vector<float> converted;
  for (uint64_t at = 0; at < elements; at += kPieceElements) {
    uint64_t count = std::min(kPieceElements, elements - at);
    read.resize(count * from);
    TESSERA_RETURN_IF_ERROR(source.file->read(*source.entry, at * from, read));
    std::span<const std::byte> bytes = read;
    if (source.entry->type != tensor.type) {
      converted.resize(count);
      toFloats(source.entry->type, read.data(), count, converted.data());
      bytes = std::as_bytes(std::span(converted));
    }
    TESSERA_RETURN_IF_ERROR(model.writeState(tensor, at * to, bytes));
  }
  return Status::success();
}

/// "a, b, c and 7 more".
std::string shortList(const std::vector<std::string> &names) {
  constexpr std::size_t kMost = 5;
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(),
                      names.begin() + std::min(kMost, names.size()), ", "));
  if (names.size() > kMost)
    text += fmt::format(" and {} more", names.size() - kMost);
  return text;
}

} // namespace

StatusOr<ImportReport> importWeights(const std::string &path,
                                     TrainModel &model) {
  StatusOr<SafetensorsModel> source = SafetensorsModel::open(path);
  if (!source.ok())
    return source.status();
  std::map<std::string_view, SafetensorsModel::Location> byCoreName;
  for (const auto &[name, location] : source->tensors())
    byCoreName.emplace(withoutPrefix(name), location);

  std::vector<std::pair<const StateTensor *, SafetensorsModel::Location>> plan;
  std::vector<std::string> missing;
  std::set<const SafetensorsEntry *> used;
  for (const StateTensor &tensor : model.state()) {
    if (tensor.role != StateRole::parameter)
      continue;
    // The exact name first: "model.x" and "x" may both be there.
    auto exact = source->tensors().find(tensor.name);
    auto core = byCoreName.find(withoutPrefix(tensor.name));
    if (exact == source->tensors().end() && core == byCoreName.end()) {
      missing.push_back(tensor.name);
      continue;
    }
    auto location =
        exact != source->tensors().end() ? exact->second : core->second;
    TESSERA_RETURN_IF_ERROR(checkMatch(tensor, location));
    plan.emplace_back(&tensor, location);
    used.insert(location.entry);
  }
  if (!missing.empty())
    return Status::error("'{}' lacks {} of the model's parameters: {}", path,
                         missing.size(), shortList(missing));

  ImportReport report;
  for (const auto &[tensor, location] : plan)
    TESSERA_RETURN_IF_ERROR(copyTensor(model, *tensor, location));
  report.loaded = plan.size();
  for (const auto &[name, location] : source->tensors())
    if (!used.contains(location.entry) && !isRedundant(name))
      report.unexpected.push_back(name);
  return report;
}

} // namespace tessera
