#include "models/gguf/GgufModel.h"
#include "models/gguf/GgufParts.h"
#include "runtime/data/gguf/GgufLayouts.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace tessera::models {
namespace {

bool isMatrix(const GgufParameter &parameter) {
  return parameter.shape.size() > 1;
}

std::string_view typeName(const GgufParameter &parameter) {
  return ggufTypeInfo(parameter.rows.tensor->type)->name;
}

/// The type of most numbers in matrices.
std::string_view dtypeOf(const GgufWeights &weights) {
  uint64_t all = 0;
  std::map<GgufType, uint64_t> elements;
  for (const GgufParameter &each : weights.parameters)
    if (isMatrix(each)) {
      const uint64_t count = each.rows.rows * each.rows.columns;
      elements[each.rows.tensor->type] += count;
      all += count;
    }
  return elements[GgufType::F32] * 2 > all   ? "float32"
         : elements[GgufType::F16] * 2 > all ? "float16"
                                             : "bfloat16";
}

bool isQuantized(const GgufParameter &parameter) {
  return ggufTypeInfo(parameter.rows.tensor->type)->block > 1;
}

/// Whether quantize-weights has a layout for the matrix: micropanels of one
/// matrix of a stack hold no row of another.
bool isKept(const GgufParameter &parameter) {
  const GgufRows &rows = parameter.rows;
  const bool isOfStack = parameter.name != parameter.parameter;
  return isMatrix(parameter) && ggufLayout(typeName(parameter)) &&
         int64_t(rows.rows) >= kMicropanel &&
         int64_t(rows.columns) >= kQuantBlock &&
         (!isOfStack || rows.rows % kMicropanel == 0);
}

/// By parameter, the type of the blocks that programs read. All matrices of a
/// stack have one.
std::map<std::string, std::string_view> layoutsOf(const GgufWeights &weights) {
  std::map<std::string, std::string_view> types;
  for (const GgufParameter &each : weights.parameters) {
    const std::string_view type = isKept(each) ? typeName(each) : "";
    if (auto [at, isNew] = types.try_emplace(each.parameter, type);
        !isNew && at->second != type)
      at->second = "";
  }
  std::erase_if(types, [](const auto &each) { return each.second.empty(); });
  return types;
}

/// A line about quantized matrices that do not keep their blocks; empty: none.
std::string
describeDequantized(const GgufWeights &weights,
                    const std::map<std::string, std::string_view> &layouts) {
  std::map<std::string_view, size_t> counts;
  for (const GgufParameter &each : weights.parameters)
    if (isQuantized(each) && !layouts.contains(each.parameter))
      ++counts[typeName(each)];
  std::string matrices;
  for (const auto &[type, count] : counts)
    matrices +=
        fmt::format("{}{} {}", matrices.empty() ? "" : ", ", count, type);
  if (matrices.empty())
    return "";
  return fmt::format("weights that are dequantized as they are loaded: {}, "
                     "which no kernel reads as stored",
                     matrices);
}

} // namespace

bool isGguf(const std::string &path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return false;
  if (std::filesystem::path(path).extension() == ".gguf")
    return true;
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

StatusOr<GgufModel> openGguf(const std::string &path) {
  auto opened = GgufFile::open(path);
  if (!opened.ok())
    return opened.status();
  return ggufModel(std::make_shared<const GgufFile>(opened.take()));
}

StatusOr<GgufModel> ggufModel(std::shared_ptr<const GgufFile> file) {
  const std::string &path = file->where();
  auto parts = readGguf(*file);
  if (!parts.ok())
    return parts.status();
  const auto layouts = layoutsOf(parts->weights);
  if (!layouts.empty()) {
    auto &how = parts->config["quantization_config"];
    how["quant_method"] = "gguf";
    for (const auto &[parameter, type] : layouts)
      how["types"][parameter] = type;
  }
  std::vector<SafetensorsEntry> tensors;
  for (const GgufParameter &each : parts->weights.parameters)
    tensors.push_back(ggufEntry(each.name, each.shape, file, each.rows));
  auto model = std::make_shared<const SafetensorsModel>(
      SafetensorsModel::of(SafetensorsFile::of(path, std::move(tensors))));
  return GgufModel{ModelFiles(path, parts->files(dtypeOf(parts->weights))),
                   WeightFiles(path, std::move(model)),
                   describeDequantized(parts->weights, layouts)};
}

} // namespace tessera::models
