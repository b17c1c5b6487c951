#include "runtime/weights/Magnitudes.h"
#include "runtime/support/Floats.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/NormalFloats.h"

#include <algorithm>
#include <cmath>

namespace tessera {
namespace {

/// Values or scales of a matrix that the model has in another layout than rows.
const StateTensor *findPart(const ModelState &model, const std::string &weight,
                            bool isScales) {
  const auto &state = model.state();
  const auto found = std::ranges::find_if(state, [&](const StateTensor &each) {
    return each.quantized && each.quantized->isScales == isScales &&
           each.quantized->source == weight;
  });
  return found == state.end() ? nullptr : &*found;
}

template <typename Word>
StatusOr<std::vector<Word>> readWords(ModelState &model,
                                      const StateTensor &tensor) {
  std::vector<Word> words(tensor.size / sizeof(Word));
  TESSERA_RETURN_IF_ERROR(
      model.readState(tensor, 0, std::as_writable_bytes(std::span(words))));
  return words;
}

StatusOr<std::vector<float>> readNormalFloats(ModelState &model,
                                              const StateTensor &values,
                                              const StateTensor &scales) {
  auto words = readWords<uint32_t>(model, values),
       absmax = readWords<uint32_t>(model, scales);
  for (const Status *status : {&words.status(), &absmax.status()})
    if (!status->ok())
      return *status;
  return dequantizeNormalFloats(values.quantized->layout, *words, *absmax);
}

StatusOr<std::vector<float>> readMicropanels(ModelState &model,
                                             const StateTensor &values) {
  constexpr int64_t lanes = QuantizedLayout::kMicropanel;
  const QuantizedLayout &layout = values.quantized->layout;
  auto halves = readWords<uint16_t>(model, values);
  if (!halves.ok())
    return halves.status();
  std::vector<float> matrix(layout.rows * layout.columns);
  for (int64_t n = 0; n < layout.rows; ++n)
    for (int64_t k = 0; k < layout.columns; ++k) {
      const int64_t word =
          (n / lanes * layout.words() + k / 2) * lanes + n % lanes;
      matrix[n * layout.columns + k] = bf16ToFloat((*halves)[2 * word + k % 2]);
    }
  return matrix;
}

StatusOr<ModelMatrix> readRows(ModelState &model, const StateTensor &tensor,
                               bool isTransposed) {
  if (tensor.shape.size() != 2 || !converts(tensor.type, SafetensorsType::f32))
    return Status::error("'{}' is not a matrix of floats", tensor.name);
  std::vector<std::byte> bytes(tensor.size);
  TESSERA_RETURN_IF_ERROR(model.readState(tensor, 0, bytes));
  std::vector<float> values(tensor.shape[0] * tensor.shape[1]);
  toFloats(tensor.type, bytes.data(), values.size(), values.data());
  return ModelMatrix{std::move(values), tensor.shape[isTransposed],
                     tensor.shape[!isTransposed], isTransposed};
}

//===--- norms ------------------------------------------------------------===//

using Location = SafetensorsModel::Location;

/// Of the rows of a file's matrix in the type in which a model has it; its own
/// rows, or with `isTransposed` its columns.
StatusOr<std::vector<double>>
fileNorms(const Location &from, SafetensorsType type, bool isTransposed) {
  constexpr uint64_t kElements = uint64_t(1) << 20;
  const auto &[file, entry] = from;
  const uint64_t height = entry->shape[0], width = entry->shape[1],
                 size = safetensorsBits(entry->type) / 8 * width,
                 some = std::max<uint64_t>(1, kElements / width);
  std::vector<double> squares(isTransposed ? width : height);
  std::vector<std::byte> read, stored;
  std::vector<double> values;
  for (uint64_t first = 0; first < height; first += some) {
    const uint64_t count = std::min(some, height - first);
    read.resize(count * size);
    stored.resize(count * width * (safetensorsBits(type) / 8));
    values.resize(count * width);
    TESSERA_RETURN_IF_ERROR(file->read(*entry, first * size, read));
    convertElements(entry->type, read, type, stored);
    convertElements(type, stored, SafetensorsType::f64,
                    std::as_writable_bytes(std::span(values)));
    for (uint64_t i = 0; i < values.size(); ++i)
      squares[isTransposed ? i % width : first + i / width] +=
          values[i] * values[i];
  }
  std::ranges::transform(squares, squares.begin(),
                         [](double sum) { return std::sqrt(sum); });
  return squares;
}

std::vector<double> rowNorms(const ModelMatrix &matrix) {
  std::vector<double> norms(matrix.rows);
  for (uint64_t row = 0; row < matrix.rows; ++row) {
    double sum = 0;
    for (uint64_t k = 0; k < matrix.columns; ++k) {
      const double value = matrix.values[row * matrix.columns + k];
      sum += value * value;
    }
    norms[row] = std::sqrt(sum);
  }
  return norms;
}

/// From the file, since a rank may have a part of the matrix only; nf4 is never
/// cut, and what it becomes is known in the model.
StatusOr<std::vector<double>>
baseNorms(ModelState &model, const std::string &path, const FindTensor &find) {
  const std::string weight = path + ".weight";
  if (findPart(model, weight, /*isScales=*/false)) {
    auto matrix = readMatrix(model, path);
    if (!matrix.ok())
      return matrix.status();
    return rowNorms(*matrix);
  }
  const StateTensor *tensor = model.find(weight);
  const auto from = find(weight);
  if (!tensor || !from || from->entry->shape.size() != 2)
    return Status::error("'{}' is not a matrix, and its rows have no norms",
                         weight);
  return fileNorms(*from, tensor->type, isConv1d(path));
}

Status writeNorms(ModelState &model, const StateTensor &tensor,
                  const std::vector<double> &norms) {
  if (tensor.shape != std::vector<uint64_t>{norms.size()})
    return Status::error("'{}' has the shape [{}], and its matrix {} rows",
                         tensor.name, fmt::join(tensor.shape, ", "),
                         norms.size());
  std::vector<std::byte> bytes(tensor.size);
  convertElements(SafetensorsType::f64, std::as_bytes(std::span(norms)),
                  tensor.type, bytes);
  return model.writeState(tensor, 0, bytes);
}

} // namespace

StatusOr<ModelMatrix> readMatrix(ModelState &model, const std::string &path) {
  const std::string weight = path + ".weight";
  if (const StateTensor *tensor = model.find(weight))
    return readRows(model, *tensor, isConv1d(path));
  const StateTensor *values = findPart(model, weight, false),
                    *scales = findPart(model, weight, true);
  if (!values)
    return Status::error("the model has no '{}'", weight);
  const QuantizedLayout &layout = values->quantized->layout;
  const bool isPacked = layout.bits == 16;
  if (values->quantized->stack || !(isPacked || (layout.nf4() && scales)))
    return Status::error("'{}' is quantized, and norms of its rows are needed; "
                         "leave --quant out, or merge the adapter",
                         weight);
  auto matrix = isPacked ? readMicropanels(model, *values)
                         : readNormalFloats(model, *values, *scales);
  if (!matrix.ok())
    return matrix.status();
  return ModelMatrix{matrix.take(), uint64_t(layout.rows),
                     uint64_t(layout.columns)};
}

Status startMagnitudes(const std::string &from, ModelState &model,
                       const FindTensor &find) {
  for (const StateTensor &tensor : model.state()) {
    if (tensor.role != StateRole::parameter || !isWeightNorm(tensor.name))
      continue;
    const std::string path =
        tensor.name.substr(0, tensor.name.size() - kWeightNorm.size());
    const std::string magnitude = fmt::format("{}{}", path, kMagnitude);
    auto norms = baseNorms(model, path, find);
    if (!norms.ok())
      return norms.status();
    TESSERA_RETURN_IF_ERROR(writeNorms(model, tensor, *norms));
    if (find(magnitude))
      continue;
    if (find(fmt::format("{}{}.weight", path, kAdapterOut)))
      return Status::error(
          "'{}' has factors of '{}' without its magnitudes, as "
          "adapter.kind: lora has them; merge them with "
          "tessera export --merge, and use what that writes",
          from, path);
    if (const StateTensor *own = model.find(magnitude))
      TESSERA_RETURN_IF_ERROR(writeNorms(model, *own, *norms));
  }
  return Status::success();
}

} // namespace tessera
