#include "runtime/generate/Export.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/data/ShallowJson.h"
#include "runtime/generate/AdapterExport.h"
#include "runtime/recipe/BaseLayout.h"
#include "runtime/support/Floats.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/RunRecipe.h"
#include "runtime/weights/AdapterNames.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Type = SafetensorsType;

struct Chosen {
  std::string name;
  CheckpointManifest manifest;
};

StatusOr<Chosen> chooseCheckpoint(const RunPath &place, const TextSink &note) {
  std::vector<std::string> names = {place.checkpoint};
  if (place.checkpoint.empty()) {
    auto listed = listCheckpoints(place.run);
    if (!listed.ok())
      return listed.status();
    names = listed.take();
  }
  if (names.empty())
    return Status::error("'{}' has no checkpoint yet", place.run);
  std::vector<std::string> damaged;
  for (const std::string &name : names) {
    auto manifest = verifyCheckpoint(place.run + "/" + name);
    if (!manifest.ok()) {
      damaged.push_back(manifest.message());
      continue;
    }
    for (const std::string &what : damaged)
      note(what);
    return Chosen{name, manifest.take()};
  }
  if (damaged.size() == 1)
    return Status::error("{}", damaged.front());
  return Status::error("all {} checkpoints in '{}' are damaged; the newest: {}",
                       damaged.size(), place.run, damaged.front());
}

//===--- weights ----------------------------------------------------------===//

/// Converts the elements of `from` to the type of `to`; false if one overflows.
bool convert(std::span<const std::byte> in, Type from, Type to,
             std::vector<std::byte> &out) {
  size_t width = safetensorsBits(from) / 8, toWidth = safetensorsBits(to) / 8;
  size_t count = in.size() / width;
  out.resize(count * toWidth);
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, in.data() + i * width, width);
    float value = from == Type::f32    ? std::bit_cast<float>(bits)
                  : from == Type::bf16 ? bf16ToFloat(uint16_t(bits))
                                       : f16ToFloat(uint16_t(bits));
    uint32_t result = to == Type::f32    ? std::bit_cast<uint32_t>(value)
                      : to == Type::bf16 ? floatToBf16(value)
                                         : floatToF16(value);
    if (to == Type::f16 && std::isfinite(value) && (result & 0x7c00) == 0x7c00)
      return false;
    std::memcpy(out.data() + i * toWidth, &result, toWidth);
  }
  return true;
}

Status emit(const SafetensorsFile &file, const SafetensorsEntry &entry, Type to,
            SafetensorsSink &sink) {
  std::vector<std::byte> piece, converted;
  for (uint64_t done = 0, size = entry.end - entry.begin; done < size;
       done += piece.size()) {
    piece.resize(std::min(kCheckpointPiece, size - done));
    TESSERA_RETURN_IF_ERROR(file.read(entry, done, piece));
    if (entry.type == to) {
      TESSERA_RETURN_IF_ERROR(sink.write(piece));
      continue;
    }
    if (!convert(piece, entry.type, to, converted))
      return Status::error("'{}' has a value that is too large for f16; choose "
                           "--dtype bf16 or f32",
                           entry.name);
    TESSERA_RETURN_IF_ERROR(sink.write(converted));
  }
  return Status::success();
}

/// Writes f32 values as `to`.
Status emitFloats(const std::string &name, std::span<const float> values,
                  Type to, SafetensorsSink &sink) {
  const auto bytes = std::as_bytes(values);
  if (to == Type::f32)
    return sink.write(bytes);
  std::vector<std::byte> converted;
  if (!convert(bytes, Type::f32, to, converted))
    return Status::error("'{}' has a value that is too large for f16; choose "
                         "--dtype bf16 or f32",
                         name);
  return sink.write(converted);
}

bool isConvertible(Type type) {
  return type == Type::f32 || type == Type::bf16 || type == Type::f16;
}

/// The tensors of the file in the type to write.
StatusOr<std::vector<SafetensorsTensor>> tensorsOf(const SafetensorsFile &file,
                                                   std::optional<Type> type) {
  std::vector<SafetensorsTensor> tensors;
  for (const SafetensorsEntry &entry : file.header().tensors) {
    Type to =
        isQuantizedPart(file, entry) ? entry.type : type.value_or(entry.type);
    if (to != entry.type && !isConvertible(entry.type))
      return Status::error("'{}' is {}, which --dtype cannot convert; leave it "
                           "out",
                           entry.name, safetensorsName(entry.type));
    uint64_t size = entry.end - entry.begin;
    if (to != entry.type) // both of whole bytes
      size =
          size / (safetensorsBits(entry.type) / 8) * (safetensorsBits(to) / 8);
    tensors.push_back({entry.name, to, entry.shape, size,
                       [&file, &entry, to](SafetensorsSink &sink) {
                         return emit(file, entry, to, sink);
                       }});
  }
  return tensors;
}

/// The type of most elements but for those of a quantized base; routers may
/// have another.
Type mainType(const SafetensorsFile &file,
              const std::vector<SafetensorsTensor> &tensors) {
  std::map<Type, uint64_t> bytes;
  for (const SafetensorsTensor &tensor : tensors)
    if (const SafetensorsEntry *entry = file.header().find(tensor.name);
        !entry || !isQuantizedPart(file, *entry))
      bytes[tensor.type] += tensor.size;
  auto most = std::ranges::max_element(
      bytes, {}, [](const auto &entry) { return entry.second; });
  return most == bytes.end() ? Type::f32 : most->first;
}

//===--- adapters ---------------------------------------------------------===//

bool hasAdapter(const std::vector<SafetensorsTensor> &tensors) {
  return std::ranges::any_of(tensors, [](const SafetensorsTensor &tensor) {
    return isAdapterFactor(tensor.name);
  });
}

/// The adapter of a run's recipe, the layout of its base if that is quantized,
/// whether the family's matrices are [in, out], and whether a scoring head was
/// trained with it.
struct RunAdapter {
  recipe::Recipe::Adapter adapter;
  std::optional<QuantizedLayout> layout;
  bool isTransposed = false, hasScore = false;
};

/// A quantized base dequantized, each matrix as one tensor of type `to`.
void dequantizeBase(const SafetensorsFile &file, Type to, const RunAdapter &own,
                    std::vector<SafetensorsTensor> &tensors) {
  std::vector<SafetensorsTensor> all;
  for (SafetensorsTensor &tensor : tensors) {
    const SafetensorsEntry *entry = file.header().find(tensor.name);
    if (!entry || !isQuantizedPart(file, *entry)) {
      all.push_back(std::move(tensor));
      continue;
    }
    const std::string name = quantizedWeight(*entry);
    auto base = name.empty()
                    ? std::nullopt
                    : baseWeightOf(file, name, own.isTransposed, own.layout);
    if (!base)
      continue;
    const uint64_t size =
        base->shape[0] * base->shape[1] * (safetensorsBits(to) / 8);
    all.push_back({name, to, base->shape, size,
                   [=, &file, isTransposed = own.isTransposed](
                       SafetensorsSink &sink) -> Status {
                     auto values = readWeight(file, *base, isTransposed);
                     if (!values.ok())
                       return values.status();
                     return emitFloats(name, *values, to, sink);
                   }});
  }
  tensors = std::move(all);
}

/// Takes the factors from the tensors and adds them to their weights, whose
/// rows get their magnitudes.
Status mergeFactors(const SafetensorsFile &file, const RunAdapter &own,
                    std::vector<SafetensorsTensor> &tensors) {
  const size_t taken = std::erase_if(
      tensors, [](const auto &tensor) { return isOfAdapter(tensor.name); });
  size_t used = 0;
  const bool hasMagnitudes = own.adapter.kind == recipe::AdapterKind::Dora;
  for (SafetensorsTensor &tensor : tensors) {
    const AdapterFactors factors = adapterFactorsOf(file, tensor.name);
    if (!factors.in || !factors.out ||
        (factors.magnitude != nullptr) != hasMagnitudes)
      continue;
    const auto weight =
        baseWeightOf(file, tensor.name, own.isTransposed, own.layout);
    if (!weight)
      continue;
    used += hasMagnitudes ? 3 : 2;
    const double scale = own.adapter.scaleOf(
        std::string_view(tensor.name).substr(0, tensor.name.rfind('.')));
    tensor.emit = [=, &file, isTransposed = own.isTransposed,
                   to = tensor.type](SafetensorsSink &sink) -> Status {
      auto merged = mergedWeight(file, *weight, factors, scale, isTransposed);
      if (!merged.ok())
        return merged.status();
      return emitFloats(weight->name, *merged, to, sink);
    };
  }
  if (used != taken)
    return Status::error("'{}' has {} factors of adapters without their "
                         "counterparts; the checkpoint is damaged",
                         file.path(), taken - used);
  return Status::success();
}

StatusOr<RunAdapter> adapterOf(const RunPath &place,
                               const CheckpointManifest &manifest) {
  auto text = readFile(place.run + "/" + kRecipeFile, size_t(1) << 20);
  if (!text.ok())
    return text.status();
  auto recipe = parseRunRecipe(*text);
  if (!recipe.ok())
    return recipe.status();
  const nlohmann::json config = parseShallowJson(manifest.modelConfig);
  return RunAdapter{recipe->values.adapter, recipe::baseLayout(recipe->values),
                    config.is_object() &&
                        config.value("model_type", "") == std::string("gpt2"),
                    recipe->values.task == recipe::Task::Reward};
}

/// The weights and the configuration to write.
struct Contents {
  std::vector<SafetensorsTensor> tensors;
  std::string weightsFile = "model.safetensors", configFile = "config.json",
              config;
};

/// Of a run with an adapter: the adapter alone, or the merged model.
Status applyAdapter(const RunPath &place, const CheckpointManifest &manifest,
                    const SafetensorsFile &file, bool merge,
                    Contents &contents) {
  if (!hasAdapter(contents.tensors))
    return merge ? Status::error("'{}' has no adapter to merge; leave --merge "
                                 "out",
                                 place.run)
                 : Status::success();
  auto own = adapterOf(place, manifest);
  if (!own.ok())
    return own.status();
  if (own->adapter.kind == recipe::AdapterKind::None)
    return Status::error("'{}' has an adapter, and its recipe none; the run is "
                         "damaged",
                         place.run);
  if (merge) {
    dequantizeBase(file, mainType(file, contents.tensors), *own,
                   contents.tensors);
    return mergeFactors(file, *own, contents.tensors);
  }
  own->adapter = withTiedHead(own->adapter, contents.tensors);
  contents.tensors = adapterTensors(std::move(contents.tensors), own->adapter);
  contents.weightsFile = "adapter_model.safetensors";
  contents.configFile = "adapter_config.json";
  contents.config =
      adapterConfig(own->adapter, own->isTransposed, own->hasScore);
  return Status::success();
}

//===--- the small files --------------------------------------------------===//

std::string_view dtypeName(Type type) {
  switch (type) {
  case Type::bf16:
    return "bfloat16";
  case Type::f16:
    return "float16";
  case Type::f64:
    return "float64";
  default:
    return "float32";
  }
}

/// Contents of the small files. Where the run's config has no end-of-sequence
/// token, it is the tokenizer's end-of-document token.
struct SmallFiles {
  std::string config, generation, tokenizerConfig;
};

StatusOr<SmallFiles> smallFiles(const std::string &modelConfig, Type type,
                                const tokenizer::Tokenizer &tokenizer) {
  if (!parseShallowJson(modelConfig).is_object())
    return Status::error("the checkpoint's config.json must be a JSON object");
  Json config = Json::parse(modelConfig);
  // Of the checkpoint that the run began with; what is written is not
  // quantized.
  config.erase("quantization_config");
  for (const char *key : {"dtype", "torch_dtype"})
    if (type == Type::f64)
      config.erase(key); // in which no config.json of ours is written
    else
      config[key] = dtypeName(type);
  Json generation = Json::object();
  Json words = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                {"clean_up_tokenization_spaces", false}};
  if (auto end = tokenizer.documentEnd()) {
    if (!config.contains("eos_token_id") || config["eos_token_id"].is_null())
      config["eos_token_id"] = *end;
    words["eos_token"] = tokenizer.token(*end).bytes;
  }
  for (const char *key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (config.contains(key) && !config[key].is_null())
      generation[key] = config[key];
  return SmallFiles{config.dump(2) + "\n", generation.dump(2) + "\n",
                    words.dump(2) + "\n"};
}

} // namespace

StatusOr<std::string> exportRun(const RunPath &place,
                                const std::string &directory,
                                std::optional<Type> type, bool merge,
                                const TextSink &note) {
  auto tokenizer = tokenizer::Tokenizer::load(place.run + "/" + kTokenizerFile);
  if (!tokenizer.ok())
    return tokenizer.status();
  auto chosen = chooseCheckpoint(place, note);
  if (!chosen.ok())
    return chosen.status();
  auto file = SafetensorsFile::open(
      fmt::format("{}/{}/model.safetensors", place.run, chosen->name));
  if (!file.ok())
    return file.status();
  auto tensors = tensorsOf(*file, type);
  if (!tensors.ok())
    return tensors.status();
  auto small = smallFiles(chosen->manifest.modelConfig,
                          mainType(*file, *tensors), *tokenizer);
  if (!small.ok())
    return small.status();
  auto words = readFile(place.run + "/" + kTokenizerFile, size_t(512) << 20);
  if (!words.ok())
    return words.status();
  std::string chatTemplate; // of a run on conversations
  if (const std::string path = place.run + "/" + kChatTemplateFile;
      std::filesystem::exists(path)) {
    auto text = readFile(path, size_t(1) << 20);
    if (!text.ok())
      return text.status();
    chatTemplate = text.take();
  }
  Contents contents;
  contents.tensors = tensors.take();
  // Of training alone: what is exported is a language model.
  std::erase_if(contents.tensors, [](const SafetensorsTensor &tensor) {
    return isValueHead(tensor.name) || isWeightNorm(tensor.name);
  });
  contents.config = small->config;
  if (Status status =
          applyAdapter(place, chosen->manifest, *file, merge, contents);
      !status.ok())
    return status;
  Status status =
      makeNewDirectory(directory, [&](const std::string &folder) -> Status {
        for (auto [name, text] :
             {std::pair(contents.configFile.c_str(), &contents.config),
              std::pair("generation_config.json", &small->generation),
              std::pair("tokenizer_config.json", &small->tokenizerConfig),
              std::pair("tokenizer.json", &*words)})
          TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/" + name, *text));
        if (!chatTemplate.empty())
          TESSERA_RETURN_IF_ERROR(
              writeNewFile(folder + "/" + kChatTemplateFile, chatTemplate));
        return writeNewSafetensors(folder + "/" + contents.weightsFile,
                                   std::move(contents.tensors));
      });
  if (!status.ok())
    return status;
  return chosen->name;
}

} // namespace tessera
