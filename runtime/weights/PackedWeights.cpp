#include "runtime/weights/PackedWeights.h"
#include "runtime/data/NewDirectory.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Text.h"
#include "runtime/weights/PackedFields.h"
#include "runtime/weights/StateParts.h"
#include "runtime/weights/formats/PackedFormats.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

constexpr uint64_t kPieceBytes = uint64_t(1) << 22;
constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr std::size_t kMostFileBytes = std::size_t(512) << 20;
constexpr std::string_view kWeight = "weight";

} // namespace

//===--- reading ----------------------------------------------------------===//

StatusOr<std::optional<PackedMatrix>> findPacked(const QuantizedPart &part,
                                                 const FindTensor &find) {
  if (part.layout.nf4() || (part.stack == 0 && !part.source.ends_with(kWeight)))
    return std::optional<PackedMatrix>();
  const bool onlyInBlocks =
      part.transposed || part.layout.superBlocks || part.layout.mxfp4();
  for (const PackedFormat *format : kPackedFormats) {
    if ((format->floats != part.layout.floats && !part.layout.mxfp4()) ||
        (onlyInBlocks && !format->inBlocks))
      continue;
    auto matrix = format->find(part, find);
    if (matrix.ok() && !matrix->has_value())
      continue;
    if (matrix.ok())
      (**matrix).format = format;
    return matrix;
  }
  return std::optional<PackedMatrix>();
}

Status loadPacked(ModelState &model, const StateTensor &values,
                  const StateTensor &scales, const PackedMatrix &matrix) {
  return matrix.format->load(model, values, scales, matrix);
}

//===--- writing ----------------------------------------------------------===//

Status checkPackable(const std::string &name, const QuantizedLayout &layout,
                     bool transposed) {
  if (transposed || !name.ends_with(kWeight))
    return Status::error("'{}' is kept as [in, out], which compressed-tensors "
                         "does not have; use --quant where the model is loaded",
                         name);
  if (layout.mxfp4())
    return Status::error("'{}' is kept in mxfp4, which is not written; use the "
                         "file that it comes from",
                         name);
  if (layout.superBlocks)
    return Status::error("'{}' is kept in super-blocks of {} bits, which "
                         "compressed-tensors does not have; use the GGUF file "
                         "that it comes from",
                         name, layout.bits);
  return checkWholeGroups(name, layout);
}

namespace {

/// Micropanels of one matrix.
struct Micropanels {
  const QuantizedLayout &layout;
  int64_t first = 0; ///< of the tensor's

  int64_t rowsOf(int64_t micropanel) const {
    return std::min(kMicropanel, layout.rows - micropanel * kMicropanel);
  }
  /// Words of a row in a file.
  int64_t wordsInFile() const { return layout.columns / layout.perWord(); }
};

/// The zero points of some rows as files have them.
uint32_t wordOfZeros(const QuantizedLayout &layout, const uint16_t *zeros) {
  uint32_t word = 0;
  for (int64_t i = 0; i < layout.perWord(); ++i)
    word |= uint32_t(int32_t(f16ToFloat(zeros[i])) + (1 << (layout.bits - 1)))
            << (i * layout.bits);
  return word;
}

class Writer {
public:
  Writer(ModelState &model, const WeightFactors &factors)
      : model(model), factors(factors) {}

  /// Heads and unquantized tensors are copied unchanged.
  Status collect() {
    for (const StateTensor &tensor : model.state()) {
      if (!tensor.quantized || tensor.quantized->isScales ||
          isHead(tensor.quantized->source))
        continue;
      const QuantizedPart &part = *tensor.quantized;
      TESSERA_RETURN_IF_ERROR(
          checkPackable(part.source, part.layout, part.transposed));
      layout = part.layout;
      for (StateTensor &matrix : matricesOf(tensor))
        matrices[matrix.quantized->source] = std::move(matrix);
    }
    if (matrices.empty())
      return Status::error("the model has no matrix of a linear layer with 16 "
                           "rows and 32 columns to quantize");
    return Status::success();
  }

  void add(const SafetensorsModel::Location &from) {
    auto found = find(from.entry->name);
    if (!found) {
      if (std::string_view name = from.entry->name;
          name.ends_with("gate.weight") || name.ends_with(".kv_b_proj.weight"))
        leftOut.emplace_back(name.substr(0, name.rfind('.')));
      return copy(from);
    }
    const StateTensor &values = *found;
    const QuantizedLayout &of = values.quantized->layout;
    const StateTensor *scales = model.find(withoutEnd(values.name) + "scales");
    const Micropanels micropanels{of, values.quantized->firstMicropanel};
    auto rows = uint64_t(of.rows);
    const auto words = uint64_t(micropanels.wordsInFile());
    tensors.push_back(
        {from.entry->name + (of.floats ? "" : "_packed"),
         of.floats ? SafetensorsType::f8_e4m3 : SafetensorsType::i32,
         {rows, of.floats ? uint64_t(of.columns) : words},
         rows * words * 4,
         [&, micropanels](SafetensorsSink &sink) {
           return emit<uint32_t>(sink, values, micropanels, of.words(),
                                 micropanels.wordsInFile(), packedBias(of));
         }});
    tensors.push_back({from.entry->name + "_scale",
                       SafetensorsType::f16,
                       {rows, uint64_t(of.groups())},
                       rows * uint64_t(of.groups()) * 2,
                       [this, scales, micropanels, &of](SafetensorsSink &sink) {
                         return emit<uint16_t>(sink, *scales, micropanels,
                                               of.scaleRows(), of.groups(), 0,
                                               of.scalesAt(1));
                       }});
    if (of.zeros)
      tensors.push_back({from.entry->name + "_zero_point",
                         SafetensorsType::i32,
                         {uint64_t(rowWords(of)), uint64_t(of.groups())},
                         uint64_t(rowWords(of)) * uint64_t(of.groups()) * 4,
                         [this, scales, micropanels](SafetensorsSink &sink) {
                           return emitZeros(sink, *scales, micropanels);
                         }});
    if (!of.floats)
      tensors.push_back({from.entry->name + "_shape",
                         SafetensorsType::i64,
                         {2},
                         16,
                         [&of](SafetensorsSink &sink) {
                           int64_t shape[] = {of.rows, of.columns};
                           return sink.write(std::as_bytes(std::span(shape)));
                         }});
    ++packed;
  }

  /// Whether the checkpoint had all matrices.
  Status checkComplete(const std::string &from) const {
    return packed == matrices.size()
               ? Status::success()
               : Status::error(
                     "'{}' lacks {} matrices that the model has; give "
                     "a complete checkpoint",
                     from, matrices.size() - packed);
  }

  Status write(const std::string &path) {
    return writeNewSafetensors(path, std::move(tensors));
  }

  nlohmann::json config() const {
    nlohmann::json weights = {
        {"num_bits", layout.bits},    {"type", layout.floats ? "float" : "int"},
        {"symmetric", !layout.zeros}, {"strategy", "group"},
        {"group_size", layout.group}, {"dynamic", false}};
    return {{"quant_method", "compressed-tensors"},
            {"format", layout.floats ? "float-quantized" : "pack-quantized"},
            {"quantization_status", "compressed"},
            {"config_groups",
             {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}},
            {"ignore", leftOut}};
  }

private:
  static std::string withoutEnd(const std::string &name) {
    return name.substr(0, name.rfind('.') + 1);
  }
  /// A tied head is quantized from the embedding table, which the model also
  /// holds unquantized.
  bool isHead(const std::string &source) const {
    return source == "lm_head.weight" || source == "embed_out.weight" ||
           model.find(source);
  }
  const StateTensor *find(const std::string &name) const {
    auto exact = matrices.find(name);
    for (const char *prefix : {"model.", "transformer."})
      if (exact == matrices.end())
        exact = matrices.find(prefix + name);
    return exact == matrices.end() ? nullptr : &exact->second;
  }

  /// Those of a tensor that is not quantized; null where there are none.
  const TensorFactors *scaledWith(const std::string &name) const {
    const TensorFactors *exact = factorsOf(factors, name);
    for (const char *prefix : {"model.", "transformer."})
      if (!exact)
        exact = factorsOf(factors, prefix + name);
    return exact;
  }

  void copy(const SafetensorsModel::Location &from) {
    uint64_t size = from.entry->end - from.entry->begin;
    if (const TensorFactors *own = scaledWith(from.entry->name)) {
      tensors.push_back({from.entry->name, from.entry->type, from.entry->shape,
                         size, [from, own](SafetensorsSink &sink) -> Status {
                           auto bytes = readScaled(from, *own);
                           return bytes.ok() ? sink.write(*bytes)
                                             : bytes.status();
                         }});
      return;
    }
    tensors.push_back({from.entry->name, from.entry->type, from.entry->shape,
                       size, [from, size](SafetensorsSink &sink) -> Status {
                         std::vector<std::byte> bytes;
                         for (uint64_t at = 0; at < size; at += kPieceBytes) {
                           bytes.resize(std::min(kPieceBytes, size - at));
                           TESSERA_RETURN_IF_ERROR(
                               from.file->read(*from.entry, at, bytes));
                           TESSERA_RETURN_IF_ERROR(sink.write(bytes));
                         }
                         return Status::success();
                       }});
  }

  /// [micropanels, `words`, 16] as rows of `kept` words, each `step`-th of
  /// them.
  template <typename Word>
  Status emit(SafetensorsSink &sink, const StateTensor &tensor,
              const Micropanels &micropanels, int64_t words, int64_t kept,
              Word flipped, int64_t step = 1) {
    std::vector<Word> micropanel(words * kMicropanel), row(kept);
    for (int64_t i = 0; i < micropanels.layout.micropanels(); ++i) {
      TESSERA_RETURN_IF_ERROR(model.readState(
          tensor, (micropanels.first + i) * micropanel.size() * sizeof(Word),
          std::as_writable_bytes(std::span(micropanel))));
      for (int64_t n = 0; n < micropanels.rowsOf(i); ++n) {
        for (int64_t word = 0; word < kept; ++word)
          row[word] = micropanel[word * step * kMicropanel + n] ^ flipped;
        TESSERA_RETURN_IF_ERROR(sink.write(std::as_bytes(std::span(row))));
      }
    }
    return Status::success();
  }

  /// Those of 32 / bits rows in a word.
  Status emitZeros(SafetensorsSink &sink, const StateTensor &scales,
                   const Micropanels &micropanels) {
    const QuantizedLayout &of = micropanels.layout;
    std::vector<uint16_t> micropanel(of.scaleRows() * kMicropanel);
    std::vector<uint32_t> words(of.groups());
    for (int64_t i = 0; i < of.micropanels(); ++i) {
      TESSERA_RETURN_IF_ERROR(model.readState(
          scales, (micropanels.first + i) * micropanel.size() * 2,
          std::as_writable_bytes(std::span(micropanel))));
      for (int64_t row = 0; row < micropanels.rowsOf(i); row += of.perWord()) {
        for (int64_t group = 0; group < of.groups(); ++group)
          words[group] = wordOfZeros(
              of, &micropanel[(of.scalesAt(group) + 1) * kMicropanel + row]);
        TESSERA_RETURN_IF_ERROR(sink.write(std::as_bytes(std::span(words))));
      }
    }
    return Status::success();
  }

  ModelState &model;
  const WeightFactors &factors;
  QuantizedLayout layout;
  std::map<std::string, StateTensor> matrices; ///< values, by source
  std::vector<SafetensorsTensor> tensors;
  std::vector<std::string> leftOut{"lm_head"}; ///< modules not quantized
  size_t packed = 0;
};

/// config.json with what was done.
StatusOr<std::string> configWith(const std::string &from, nlohmann::json how) {
  std::string path = from + "/config.json";
  auto text = readTextFile(path, kMostConfigBytes);
  if (!text.ok())
    return text.status();
  auto config = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (!config.is_object())
    return Status::error("{}: no JSON object", path);
  config["quantization_config"] = nlohmann::ordered_json(how);
  return config.dump(2) + "\n";
}

/// Copies all files other than the weights.
Status copyRest(const std::filesystem::path &from,
                const std::filesystem::path &to) {
  for (const char *name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja", "added_tokens.json",
        "vocab.json", "merges.txt", "tokenizer.model"}) {
    if (!std::filesystem::exists(from / name))
      continue;
    auto text = readFile((from / name).string(), kMostFileBytes);
    if (!text.ok())
      return text.status();
    TESSERA_RETURN_IF_ERROR(writeNewFile((to / name).string(), *text));
  }
  return Status::success();
}

} // namespace

Status writePacked(const std::string &from, const std::string &to,
                   ModelState &model, const WeightFactors &factors) {
  auto source = SafetensorsModel::open(from);
  if (!source.ok())
    return source.status();
  Writer writer(model, factors);
  TESSERA_RETURN_IF_ERROR(writer.collect());
  for (const auto &[name, location] : source->tensors())
    writer.add(location);
  TESSERA_RETURN_IF_ERROR(writer.checkComplete(from));
  auto config = configWith(from, writer.config());
  if (!config.ok())
    return config.status();
  return makeNewDirectory(to, [&](const std::string &folder) -> Status {
    TESSERA_RETURN_IF_ERROR(writeNewFile(folder + "/config.json", *config));
    TESSERA_RETURN_IF_ERROR(copyRest(from, folder));
    return writer.write(folder + "/model.safetensors");
  });
}

} // namespace tessera
