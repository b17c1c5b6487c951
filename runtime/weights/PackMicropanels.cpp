#include "runtime/weights/PackMicropanels.h"
#include "runtime/hal/cpu/ThreadPool.h"
#include "runtime/weights/CopyTensor.h"
#include "runtime/weights/MakeMicropanels.h"

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

/// Packs one matrix.
class Packer {
public:
  Packer(ModelState &model, const StateTensor &values,
         const SafetensorsFile &file, const SafetensorsEntry &entry)
      : model(model), values(values), file(file), entry(entry),
        part(*values.quantized), layout(part.layout) {}

  Status run() {
    if (part.transposed) {
      whole.resize(layout.rows * layout.columns);
      TESSERA_RETURN_IF_ERROR(read(0, whole));
    }
    return makeMicropanels(
        model, values, nullptr,
        [this](int64_t micropanel, std::span<uint32_t> words,
               std::span<uint16_t>, unsigned thread) -> Status {
          const int64_t row = micropanel * kMicropanel;
          std::vector<uint16_t> &rows = rowsOf[thread];
          rows.resize(std::min(kMicropanel, layout.rows - row) *
                      layout.columns);
          TESSERA_RETURN_IF_ERROR(readRows(row, rows));
          packMicropanel(layout, rows, words);
          return Status::success();
        });
  }

private:
  Status readRows(int64_t row, std::vector<uint16_t> &to) const {
    if (!part.transposed)
      return read(row * layout.columns, to);
    const int64_t rows = int64_t(to.size()) / layout.columns;
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < layout.columns; ++k)
        to[n * layout.columns + k] = whole[k * layout.rows + row + n];
    return Status::success();
  }

  /// Elements from `first` on.
  Status read(int64_t first, std::vector<uint16_t> &to) const {
    const uint64_t size = safetensorsBits(entry.type) / 8;
    auto bytes = std::as_writable_bytes(std::span(to));
    if (entry.type == SafetensorsType::bf16)
      return file.read(entry, first * size, bytes);
    std::vector<std::byte> wide(to.size() * size);
    TESSERA_RETURN_IF_ERROR(file.read(entry, first * size, wide));
    toBf16(entry.type, wide.data(), to.size(), to.data());
    return Status::success();
  }

  ModelState &model;
  const StateTensor &values;
  const SafetensorsFile &file;
  const SafetensorsEntry &entry;
  const QuantizedPart &part;
  const QuantizedLayout &layout;
  std::vector<uint16_t> whole; // of a transposed matrix
  std::vector<std::vector<uint16_t>> rowsOf{hal::availableProcessors()};
};

} // namespace

void packMicropanel(const QuantizedLayout &layout,
                    std::span<const uint16_t> rows, std::span<uint32_t> words) {
  const int64_t count = int64_t(rows.size()) / layout.columns,
                pairs = layout.columns / 2;
  constexpr int64_t kAtOnce = 16; // a line of each row
  if (count < kMicropanel || layout.columns % kQuantBlock != 0)
    std::ranges::fill(words, 0u);
  auto pairAt = [&](int64_t row, int64_t pair) {
    uint32_t word;
    std::memcpy(&word, &rows[row * layout.columns + 2 * pair], sizeof word);
    return word;
  };
  int64_t first = 0;
  if (count == kMicropanel)
    for (; first + kAtOnce <= pairs; first += kAtOnce) {
      uint32_t *to = &words[first * kMicropanel];
      for (int64_t pair = 0; pair < kAtOnce; ++pair)
        for (int64_t row = 0; row < kMicropanel; ++row)
          to[pair * kMicropanel + row] = pairAt(row, first + pair);
    }
  for (; first < pairs; ++first)
    for (int64_t row = 0; row < count; ++row)
      words[first * kMicropanel + row] = pairAt(row, first);
  if (layout.columns % 2 != 0)
    for (int64_t row = 0; row < count; ++row)
      words[pairs * kMicropanel + row] = rows[(row + 1) * layout.columns - 1];
}

Status packMicropanels(ModelState &model, const StateTensor &values,
                       const SafetensorsFile &file,
                       const SafetensorsEntry &entry) {
  return Packer(model, values, file, entry).run();
}

} // namespace tessera
