#include "runtime/data/gguf/GgufRows.h"

#include <algorithm>

namespace tessera {

uint64_t GgufRows::rowBytes() const {
  const GgufTypeInfo info = *ggufTypeInfo(tensor->type);
  return columns / info.block * info.bytes;
}

uint64_t GgufRows::sourceRow(uint64_t row) const {
  if (heads == 0)
    return row;
  const uint64_t head = rows / uint64_t(heads), inHead = row % head;
  return row - inHead + inHead % (head / 2) * 2 + inHead / (head / 2);
}

Status GgufRows::readBlocks(uint64_t row, std::span<std::byte> out) const {
  return file->read(*tensor, (firstRow + sourceRow(row)) * rowBytes(), out);
}

Status GgufRows::readRow(uint64_t row, std::span<float> out) const {
  std::vector<std::byte> blocks(rowBytes());
  TESSERA_RETURN_IF_ERROR(readBlocks(row, blocks));
  dequantize(tensor->type, blocks, out);
  if (plusOne)
    for (float &value : out)
      value -= 1;
  return Status::success();
}

Status GgufRows::read(uint64_t first, std::span<float> out) const {
  std::vector<float> row(columns);
  if (transposed) {
    std::vector<float> whole(rows * columns);
    for (uint64_t i = 0; i < rows; ++i) {
      TESSERA_RETURN_IF_ERROR(readRow(i, row));
      for (uint64_t j = 0; j < columns; ++j)
        whole[j * rows + i] = row[j];
    }
    std::copy_n(whole.begin() + first, out.size(), out.begin());
    return Status::success();
  }
  for (uint64_t at = 0; at < out.size();) {
    const uint64_t column = (first + at) % columns,
                   count = std::min(columns - column, out.size() - at);
    TESSERA_RETURN_IF_ERROR(readRow((first + at) / columns, row));
    std::copy_n(row.begin() + column, count, out.begin() + at);
    at += count;
  }
  return Status::success();
}

namespace {
class GgufSource final : public TensorSource {
public:
  GgufSource(std::shared_ptr<const GgufFile> file, const GgufRows &rows)
      : file(std::move(file)), rows(rows) {}

  Status read(uint64_t offset, std::span<std::byte> out) const override {
    if (offset % sizeof(float) != 0 || out.size() % sizeof(float) != 0)
      return Status::error("{}: tensor '{}' is read by parts of elements; "
                           "please report this",
                           file->where(), rows.tensor->name);
    if (reinterpret_cast<uintptr_t>(out.data()) % alignof(float) == 0)
      return rows.read(
          offset / sizeof(float),
          {reinterpret_cast<float *>(out.data()), out.size() / sizeof(float)});
    std::vector<float> values(out.size() / sizeof(float));
    TESSERA_RETURN_IF_ERROR(rows.read(offset / sizeof(float), values));
    std::ranges::copy(std::as_bytes(std::span(values)), out.begin());
    return Status::success();
  }
  const GgufRows *gguf() const override { return &rows; }

private:
  std::shared_ptr<const GgufFile> file;
  GgufRows rows;
};
} // namespace

SafetensorsEntry ggufEntry(std::string name, std::vector<uint64_t> shape,
                           std::shared_ptr<const GgufFile> file,
                           const GgufRows &rows) {
  const uint64_t bytes = rows.rows * rows.columns * sizeof(float);
  return {std::move(name),
          SafetensorsType::f32,
          std::move(shape),
          0,
          bytes,
          std::make_shared<GgufSource>(std::move(file), rows)};
}

} // namespace tessera
