// Names: gguf-py/gguf/tensor_mapping.py; changes of contents: modify_tensors of
// convert_hf_to_gguf.py, both of ggml-org/llama.cpp.
#include "models/gguf/GgufWeights.h"
#include "models/gguf/GgufConfig.h"
#include "runtime/support/Floats.h"
#include "runtime/support/Text.h"

#include <cmath>
#include <cstring>
#include <set>

namespace tessera::models {
namespace {

constexpr size_t kPiece = 1 << 20; // bytes per write

struct Name {
  std::string_view ours, gguf;
};
constexpr Name kGlobal[] = {{"model.embed_tokens", "token_embd"},
                            {"model.norm", "output_norm"},
                            {"lm_head", "output"},
                            {"transformer.wte", "token_embd"},
                            {"transformer.wpe", "position_embd"},
                            {"transformer.ln_f", "output_norm"}};
constexpr Name kLayer[] = {{"self_attn.q_proj", "attn_q"},
                           {"self_attn.k_proj", "attn_k"},
                           {"self_attn.v_proj", "attn_v"},
                           {"self_attn.o_proj", "attn_output"},
                           {"self_attn.qkv_proj", "attn_qkv"},
                           {"self_attn.q_norm", "attn_q_norm"},
                           {"self_attn.k_norm", "attn_k_norm"},
                           {"mlp.gate_proj", "ffn_gate"},
                           {"mlp.up_proj", "ffn_up"},
                           {"mlp.gate_up_proj", "ffn_up"},
                           {"mlp.down_proj", "ffn_down"},
                           {"input_layernorm", "attn_norm"},
                           {"pre_feedforward_layernorm", "ffn_norm"},
                           {"post_feedforward_layernorm", "post_ffw_norm"},
                           {"block_sparse_moe.gate", "ffn_gate_inp"},
                           {"block_sparse_moe.experts.*.w1", "ffn_gate_exps"},
                           {"block_sparse_moe.experts.*.w2", "ffn_down_exps"},
                           {"block_sparse_moe.experts.*.w3", "ffn_up_exps"},
                           {"ln_1", "attn_norm"},
                           {"ln_2", "ffn_norm"},
                           {"attn.c_attn", "attn_qkv"},
                           {"attn.c_proj", "attn_output"},
                           {"mlp.c_fc", "ffn_up"},
                           {"mlp.c_proj", "ffn_down"}};

template <size_t N>
std::string_view lookUp(const Name (&names)[N], std::string_view ours) {
  for (const Name &each : names)
    if (each.ours == ours)
      return each.gguf;
  return {};
}

/// The GGUF name of a parameter, such as "blk.3.attn_q.weight"; empty if there
/// is none.
std::string ggufName(const ModelSpec &spec, const Parameter &parameter) {
  std::string_view name = parameter.name;
  size_t dot = name.rfind('.');
  std::string_view suffix = name.substr(dot), stem = name.substr(0, dot);
  std::string_view found;
  if (parameter.layer < 0) {
    found = lookUp(kGlobal, stem);
    return found.empty() ? "" : fmt::format("{}{}", found, suffix);
  }
  stem.remove_prefix(layerPrefix(spec, parameter.layer).size());
  if (stem == "post_attention_layernorm") // is before the MLP in some families
    found = spec.residual.postNorms ? "post_attention_norm" : "ffn_norm";
  else
    found = lookUp(kLayer, stem);
  return found.empty()
             ? ""
             : fmt::format("blk.{}.{}{}", parameter.layer, found, suffix);
}

/// A buffer of converted numbers for the output file.
class Writer {
public:
  Writer(SafetensorsSink &sink, SafetensorsType type)
      : sink(sink), type(type) {}
  /// False if one is too large for the type.
  bool add(std::span<const float> values) {
    bool fits = true;
    for (float value : values) {
      if (type == SafetensorsType::f32) {
        append(value);
        continue;
      }
      uint16_t bits = type == SafetensorsType::bf16 ? floatToBf16(value)
                                                    : floatToF16(value);
      fits &= !std::isfinite(value) || type == SafetensorsType::bf16 ||
              (bits & 0x7c00) != 0x7c00;
      append(bits);
    }
    return fits;
  }
  Status flush(size_t from) {
    if (buffer.size() < from)
      return Status::success();
    TESSERA_RETURN_IF_ERROR(sink.write(buffer));
    buffer.clear();
    return Status::success();
  }

private:
  template <typename T> void append(T value) {
    size_t size = buffer.size();
    buffer.resize(size + sizeof value);
    std::memcpy(buffer.data() + size, &value, sizeof value);
  }
  SafetensorsSink &sink;
  SafetensorsType type;
  std::vector<std::byte> buffer;
};

Status emit(const GgufRows &source, SafetensorsType type,
            SafetensorsSink &sink) {
  Writer writer(sink, type);
  const uint64_t elements = source.rows * source.columns;
  // A transposed one is read whole, or would be for each of its rows.
  std::vector<float> row(source.transposed ? elements : source.columns);
  for (uint64_t at = 0; at < elements; at += row.size()) {
    TESSERA_RETURN_IF_ERROR(source.read(at, row));
    if (!writer.add(row))
      return Status::error("{}: tensor {} has a value that is too large for "
                           "f16; choose --dtype bf16 or f32",
                           source.file->where(), quote(source.tensor->name));
    TESSERA_RETURN_IF_ERROR(writer.flush(kPiece));
  }
  return writer.flush(1);
}

/// Finds the parameters one by one.
class Weights {
public:
  Weights(const GgufFile &file, const ModelSpec &spec)
      : file(file), spec(spec) {}
  StatusOr<GgufWeights> read();

private:
  template <typename... Args>
  Status error(fmt::format_string<Args...> format, Args &&...args) const {
    return Status::error("{}: {}", file.where(),
                         fmt::format(format, std::forward<Args>(args)...));
  }
  Status add(const Parameter &parameter);
  Status addStack(const Parameter &parameter, const std::string &from);
  Status find(const Parameter &parameter, const std::string &from,
              const std::vector<uint64_t> &shape, const GgufTensor *&tensor);
  GgufRows sourceOf(const Parameter &parameter, const GgufTensor &tensor) const;

  const GgufFile &file;
  const ModelSpec &spec;
  GgufWeights result;
  std::set<std::string_view> used;
};

Status Weights::find(const Parameter &parameter, const std::string &from,
                     const std::vector<uint64_t> &shape,
                     const GgufTensor *&tensor) {
  tensor = file.tensor(from);
  if (!tensor)
    return error("the tensor {} is missing (the model's {})", quote(from),
                 parameter.name);
  if (tensor->shape != shape)
    return error(
        "tensor {} has the shape [{}], but the model's {} requires [{}]",
        quote(from), fmt::join(tensor->shape, ", "), parameter.name,
        fmt::join(shape, ", "));
  if (!isDequantized(tensor->type))
    return error("tensor {} is {}, which is not supported; use a file with {}",
                 quote(from), ggufTypeInfo(tensor->type)->name,
                 dequantizedTypes());
  used.insert(tensor->name);
  ++result.types[std::string(ggufTypeInfo(tensor->type)->name)];
  return Status::success();
}

GgufRows Weights::sourceOf(const Parameter &parameter,
                           const GgufTensor &tensor) const {
  GgufRows source;
  source.file = &file;
  source.tensor = &tensor;
  source.columns = tensor.shape.back();
  for (size_t i = 0; i + 1 < tensor.shape.size(); ++i)
    source.rows *= tensor.shape[i];
  std::string_view name = parameter.name;
  bool isLlama = spec.family == Family::Llama ||
                 spec.family == Family::Mistral ||
                 spec.family == Family::Mixtral;
  if (isLlama && name.find("self_attn.q_proj.") != name.npos)
    source.heads = spec.heads;
  if (isLlama && name.find("self_attn.k_proj.") != name.npos)
    source.heads = spec.kvHeads;
  // A bias has rows of one number, so its type must not be quantized.
  if (source.heads && tensor.shape.size() == 1)
    std::swap(source.rows, source.columns);
  source.plusOne = spec.normPlusOne && name.ends_with("norm.weight");
  return source;
}

/// Experts are one tensor; in files of 2024 and before, one tensor each.
Status Weights::addStack(const Parameter &parameter, const std::string &from) {
  std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
  std::vector<uint64_t> one(shape.begin() + 1, shape.end());
  const std::string &pattern = parameter.name;
  size_t star = pattern.find('*');
  const GgufTensor *tensor = nullptr;
  bool stacked = file.tensor(from) != nullptr;
  size_t at = from.find("_exps.");
  if (stacked)
    TESSERA_RETURN_IF_ERROR(find(parameter, from, shape, tensor));
  for (uint64_t expert = 0; expert < shape[0]; ++expert) {
    if (!stacked)
      TESSERA_RETURN_IF_ERROR(find(
          parameter, fmt::format("{}.{}.weight", from.substr(0, at), expert),
          one, tensor));
    GgufRows source = sourceOf(parameter, *tensor);
    source.rows = one[0];
    source.firstRow = stacked ? expert * one[0] : 0;
    result.parameters.push_back({fmt::format("{}{}{}", pattern.substr(0, star),
                                             expert, pattern.substr(star + 1)),
                                 pattern, one, source});
  }
  return Status::success();
}

Status Weights::add(const Parameter &parameter) {
  std::string from = ggufName(spec, parameter);
  if (from.empty())
    return error("the model's {} has no name in GGUF", parameter.name);
  if (parameter.name.find('*') != std::string::npos)
    return addStack(parameter, from);
  std::vector<uint64_t> shape(parameter.shape.begin(), parameter.shape.end());
  std::vector<uint64_t> there = shape;
  bool transposed =
      spec.family == Family::Gpt2 && parameter.layer >= 0 && shape.size() == 2;
  if (transposed)
    std::swap(there[0], there[1]);
  const GgufTensor *tensor = nullptr;
  TESSERA_RETURN_IF_ERROR(find(parameter, from, there, tensor));
  GgufRows source = sourceOf(parameter, *tensor);
  source.transposed = transposed;
  if (source.heads && source.columns == 1 &&
      ggufTypeInfo(tensor->type)->block != 1)
    return error("tensor {} is {}, which is not supported for a bias",
                 quote(from), ggufTypeInfo(tensor->type)->name);
  result.parameters.push_back(
      {parameter.name, parameter.name, std::move(shape), source});
  return Status::success();
}

StatusOr<GgufWeights> Weights::read() {
  for (const Parameter &parameter : parameters(spec))
    if (Status status = add(parameter); !status.ok())
      return status;
  for (const auto &[name, tensor] : file.tensors()) {
    bool isTied = spec.tieWordEmbeddings && name == "output.weight";
    if (!used.contains(name) && !isConfigTensor(name) && !isTied)
      return error("tensor {} is not supported: the model has no such "
                   "parameter",
                   quote(name));
  }
  return std::move(result);
}

} // namespace

StatusOr<GgufWeights> ggufWeights(const GgufFile &file, const ModelSpec &spec) {
  return Weights(file, spec).read();
}

SafetensorsTensor ggufTensor(const GgufParameter &parameter,
                             SafetensorsType type) {
  const GgufRows &rows = parameter.rows;
  const uint64_t size = rows.rows * rows.columns * (safetensorsBits(type) / 8);
  return {
      parameter.name, type, parameter.shape, size,
      [rows, type](SafetensorsSink &sink) { return emit(rows, type, sink); }};
}

} // namespace tessera::models
