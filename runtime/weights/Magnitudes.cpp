#include "runtime/weights/Magnitudes.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/DequantizeMatrix.h"

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

StatusOr<std::vector<std::byte>> readBytes(ModelState &model,
                                           const StateTensor &tensor) {
  std::vector<std::byte> bytes(tensor.size);
  TESSERA_RETURN_IF_ERROR(model.readState(tensor, 0, bytes));
  return bytes;
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

/// From the file, since a rank may have a part of the matrix only; a quantized
/// one is never sharded, and what it becomes is known in the model.
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
  if (values->quantized->stack || layout.hasScales() != (scales != nullptr))
    return Status::error("'{}' is a stack of matrices, or lacks scales; norms "
                         "are of rows of one matrix",
                         weight);
  auto words = readBytes(model, *values);
  StatusOr<std::vector<std::byte>> factors = std::vector<std::byte>();
  if (scales)
    factors = readBytes(model, *scales);
  for (const Status *status : {&words.status(), &factors.status()})
    if (!status->ok())
      return *status;
  return ModelMatrix{dequantizeMatrix(layout, *words, *factors),
                     uint64_t(layout.rows), uint64_t(layout.columns)};
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
