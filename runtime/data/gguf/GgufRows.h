// Rows of a tensor of a GGUF file as a Hugging Face checkpoint has them.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/data/gguf/Gguf.h"

#include <memory>

namespace tessera {

/// Rows [firstRow, firstRow + rows) of a tensor, and how llama.cpp's converters
/// changed them. Points into the file, which outlives it.
struct GgufRows {
  const GgufFile *file = nullptr;
  const GgufTensor *tensor = nullptr;
  uint64_t firstRow = 0, rows = 1, columns = 1;
  /// If > 0, in each of so many heads the rows of a rotary pair are adjacent in
  /// the file, and half a head apart in the checkpoint.
  int64_t heads = 0;
  bool transposed = false; ///< the checkpoint has [columns, rows]
  bool plusOne = false;    ///< the file has 1 more

  /// Bytes of a row of the file.
  uint64_t rowBytes() const;
  /// The row of the part in the file that has row `row` of the checkpoint, as
  /// it was before transposition.
  uint64_t sourceRow(uint64_t row) const;
  /// The blocks of row `row`, in the checkpoint's order: rowBytes() bytes.
  Status readBlocks(uint64_t row, std::span<std::byte> out) const;
  /// The values of the same row.
  Status readRow(uint64_t row, std::span<float> out) const;
  /// Values from index `first` on, row-major in the checkpoint's shape. A
  /// transposed one is dequantized whole each time.
  Status read(uint64_t first, std::span<float> out) const;
};

/// The rows as a tensor of F32 named `name`; keeps the file open.
SafetensorsEntry ggufEntry(std::string name, std::vector<uint64_t> shape,
                           std::shared_ptr<const GgufFile> file,
                           const GgufRows &rows);

} // namespace tessera
