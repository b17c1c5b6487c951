// Adapters in the slots of inference programs.
#include "runtime/weights/AdapterFile.h"
#include "runtime/weights/AdapterNames.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/Magnitudes.h"
#include "runtime/weights/MergeFactors.h"

#include <algorithm>
#include <map>

namespace tessera {
namespace {

/// Of a tensor of factors of all slots, [slots, rank, width], or of their
/// magnitudes, [slots, 1, width].
bool isOfSlots(const StateTensor &tensor) {
  return tensor.role == StateRole::parameter && tensor.shape.size() == 3 &&
         isOfAdapter(tensor.name);
}

/// `floats` in the model's type.
std::vector<std::byte> bytesOf(const std::vector<float> &floats,
                               SafetensorsType type) {
  const auto *from = reinterpret_cast<const std::byte *>(floats.data());
  if (type == SafetensorsType::f32)
    return {from, from + floats.size() * sizeof(float)};
  std::vector<std::byte> bytes(floats.size() * sizeof(uint16_t));
  toBf16(SafetensorsType::f32, from, floats.size(),
         reinterpret_cast<uint16_t *>(bytes.data()));
  return bytes;
}

Status checkFits(const AdapterFile &adapter, const AdapterModule &module,
                 const StateTensor &in, const StateTensor &out) {
  const auto rank = uint64_t(module.rank());
  if (module.in->shape[1] != in.shape[2])
    return Status::error("'{}' is of another base model: '{}' is [{}, {}], "
                         "expected [{}, {}]",
                         adapter.directory, module.in->name, rank,
                         module.in->shape[1], rank, in.shape[2]);
  if (module.out->shape[0] != out.shape[2])
    return Status::error("'{}' is of another base model: '{}' is [{}, {}], "
                         "expected [{}, {}]",
                         adapter.directory, module.out->name,
                         module.out->shape[0], rank, out.shape[2], rank);
  if (rank > in.shape[1])
    return Status::error("'{}' has rank {}, and the slots hold ranks up to {}; "
                         "raise it by --adapter-rank",
                         adapter.directory, rank, in.shape[1]);
  return Status::success();
}

/// A in the first rows of [rank, in]; the others are zeros.
StatusOr<std::vector<float>> firstFactor(const AdapterFile &adapter,
                                         const AdapterModule &module,
                                         const StateTensor &tensor) {
  auto values = adapter.read(*module.in);
  if (values.ok())
    values->resize(tensor.shape[1] * tensor.shape[2]);
  return values;
}

/// What each row of the layer's matrix is multiplied by; empty: nothing.
StatusOr<std::vector<double>> rowScalesOf(const AdapterFile &adapter,
                                          const AdapterModule &module,
                                          ModelState &model) {
  if (!module.magnitude)
    return std::vector<double>();
  auto weight = readMatrix(model, module.path);
  auto in = adapter.read(*module.in), out = adapter.read(*module.out),
       magnitudes = adapter.read(*module.magnitude);
  for (const Status *status :
       {&weight.status(), &in.status(), &out.status(), &magnitudes.status()})
    if (!status->ok())
      return *status;
  const auto rank = uint64_t(module.rank());
  if (in->size() != rank * weight->columns ||
      out->size() != rank * weight->rows || magnitudes->size() != weight->rows)
    return Status::error("'{}': the factors and magnitudes of '{}' do not fit "
                         "the model's matrix of {} x {}",
                         adapter.directory, module.path, weight->rows,
                         weight->columns);
  const FactorShape shape{weight->rows, weight->columns, rank,
                          adapter.scale(module), weight->isTransposed};
  return rowScales(shape, weight->values, *in, *out, *magnitudes);
}

/// B transposed and multiplied by the scale, and by those of its rows, in the
/// first rows of [rank, out].
StatusOr<std::vector<float>>
secondFactor(const AdapterFile &adapter, const AdapterModule &module,
             const StateTensor &tensor, const std::vector<double> &rowScales) {
  auto values = adapter.read(*module.out);
  if (!values.ok())
    return values;
  const auto rank = uint64_t(module.rank()), out = tensor.shape[2];
  const double scale = adapter.scale(module);
  std::vector<float> transposed(tensor.shape[1] * out);
  for (uint64_t row = 0; row < out; ++row)
    for (uint64_t k = 0; k < rank; ++k)
      transposed[k * out + row] =
          float(rowScales.empty() ? scale : scale * rowScales[row]) *
          (*values)[row * rank + k];
  return transposed;
}

/// What the scales of rows differ from 1 by, [1, out].
std::vector<float> magnitudesOf(const StateTensor &tensor,
                                const std::vector<double> &rowScales) {
  std::vector<float> values(tensor.shape[2]);
  std::ranges::transform(rowScales, values.begin(),
                         [](double scale) { return float(scale - 1); });
  return values;
}

/// All that a slot has of one layer, by the names of the state's tensors.
using LayerValues = std::map<std::string, std::vector<float>>;

StatusOr<LayerValues> valuesOf(const AdapterFile &adapter,
                               const AdapterModule &module, ModelState &model) {
  const std::string in = fmt::format("{}{}.weight", module.path, kAdapterIn),
                    out = fmt::format("{}{}.weight", module.path, kAdapterOut),
                    magnitude = fmt::format("{}{}", module.path, kMagnitude);
  auto scales = rowScalesOf(adapter, module, model);
  if (!scales.ok())
    return scales.status();
  auto first = firstFactor(adapter, module, *model.find(in));
  if (!first.ok())
    return first.status();
  auto second = secondFactor(adapter, module, *model.find(out), *scales);
  if (!second.ok())
    return second.status();
  LayerValues values = {{in, first.take()}, {out, second.take()}};
  if (const StateTensor *tensor = model.find(magnitude))
    values[magnitude] = magnitudesOf(*tensor, *scales);
  return values;
}

/// Whether a slot has the adapter's layers, and room for its ranks.
Status checkModules(const AdapterFile &adapter, const ModelState &model) {
  for (const AdapterModule &module : adapter.modules) {
    const StateTensor *in =
        model.find(fmt::format("{}{}.weight", module.path, kAdapterIn));
    const StateTensor *out =
        model.find(fmt::format("{}{}.weight", module.path, kAdapterOut));
    if (!in || !out || !isOfSlots(*in) || !isOfSlots(*out))
      return Status::error("'{}' adapts '{}', which is not a linear layer of "
                           "the model's layers, or not one that its slots "
                           "adapt (--adapter-target)",
                           adapter.directory, module.path);
    TESSERA_RETURN_IF_ERROR(checkFits(adapter, module, *in, *out));
    if (module.magnitude &&
        !model.find(fmt::format("{}{}", module.path, kMagnitude)))
      return Status::error("'{}' has magnitudes (DoRA), and the slots were "
                           "compiled without; compile with --set "
                           "adapter.kind=dora, or merge the adapter",
                           adapter.directory);
  }
  return Status::success();
}

} // namespace

int64_t adapterSlots(const ModelState &model) {
  auto found = std::ranges::find_if(model.state(), isOfSlots);
  return found == model.state().end() ? 0 : int64_t(found->shape[0]);
}

StatusOr<AdapterValues> readAdapter(const AdapterFile &adapter,
                                    ModelState &model) {
  TESSERA_RETURN_IF_ERROR(checkModules(adapter, model));
  // Side by side: of magnitudes all of the layers' matrices are read.
  std::vector<LayerValues> layers(adapter.modules.size());
  TESSERA_RETURN_IF_ERROR(
      inParallel(uint32_t(layers.size()), [&](uint32_t i, unsigned) {
        auto values = valuesOf(adapter, adapter.modules[i], model);
        if (values.ok())
          layers[i] = values.take();
        return values.status();
      }));
  LayerValues all;
  for (LayerValues &layer : layers)
    all.merge(layer);
  AdapterValues result;
  for (const StateTensor &tensor : model.state()) {
    if (!isOfSlots(tensor))
      continue;
    const auto found = all.find(tensor.name);
    result.factors.push_back(
        {&tensor,
         bytesOf(found == all.end()
                     ? std::vector<float>(tensor.shape[1] * tensor.shape[2])
                     : found->second,
                 tensor.type)});
  }
  return result;
}

Status writeAdapter(const AdapterValues &values, ModelState &model,
                    int64_t slot) {
  for (const auto &[tensor, bytes] : values.factors)
    TESSERA_RETURN_IF_ERROR(
        model.writeState(*tensor, uint64_t(slot) * bytes.size(), bytes));
  return Status::success();
}

} // namespace tessera
