// The safetensors container, read and written as the reference implementation
// (huggingface/safetensors 0.8) does: what it accepts is accepted, what it
// rejects is rejected, and test/oracle/safetensors_oracle.py compares the two.
//
//   u64 LE header length N ≤ 100,000,000 | N bytes of JSON | tensor bytes
//
// The JSON maps names to {dtype, shape, data_offsets}. Offsets count from the
// end of the header, leave no hole, and end where the file ends. As in the
// reference a repeated tensor name is not an error: the last one counts.
#pragma once
#include "runtime/data/FileOperations.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Element types in the reference's order, which is also the order of tensors
/// in a written file (descending).
enum class SafetensorsType : uint8_t {
  boolean,
  f4,
  f6_e2m3,
  f6_e3m2,
  u8,
  i8,
  f8_e5m2,
  f8_e4m3,
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  c64,
  f64,
  i64,
  u64
};

/// "F32", "BF16", … as the file spells it.
std::string_view safetensorsName(SafetensorsType type);
std::optional<SafetensorsType> safetensorsType(std::string_view name);
/// Bits of one element; the packed 4- and 6-bit types are not whole bytes.
unsigned safetensorsBits(SafetensorsType type);

struct Float8Parts; // Float8Weights.h
struct GgufRows;    // gguf/GgufRows.h
struct Mxfp4Parts;  // Mxfp4Weights.h

/// Makes a tensor's bytes of what files have instead of it.
class TensorSource {
public:
  virtual ~TensorSource() = default;
  /// Bytes from `offset` on, which the caller has found to be the tensor's.
  virtual Status read(uint64_t offset, std::span<std::byte> out) const = 0;
  /// The 8-bit floats and scales that it is made of; null: of something else.
  virtual const Float8Parts *float8() const { return nullptr; }
  /// The rows of a GGUF file's tensor; null: of something else.
  virtual const GgufRows *gguf() const { return nullptr; }
  /// The blocks and scales of MXFP4; null: of something else.
  virtual const Mxfp4Parts *mxfp4() const { return nullptr; }
};

struct SafetensorsEntry {
  std::string name;
  SafetensorsType type;
  std::vector<uint64_t> shape;
  uint64_t begin; ///< first byte, from the end of the header
  uint64_t end;   ///< one past the last byte
  /// Null: the bytes are in the file. Otherwise only end - begin is meaningful.
  std::shared_ptr<const TensorSource> source = {};
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> tensors; ///< by ascending offset
  std::map<std::string, std::string> metadata;
  uint64_t dataStart = 0; ///< of the first tensor byte in the file
  /// The tensor of that name, or null.
  const SafetensorsEntry *find(std::string_view name) const;
  /// Name → index in `tensors`.
  std::map<std::string, std::size_t, std::less<>> byName;
};

constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;

/// Checks header and offsets of a file of `fileSize` bytes of which `head` is
/// the beginning (at least 8 bytes and the header, or the whole file).
/// Memory is proportional to the header; nothing is trusted before it is
/// proven.
StatusOr<SafetensorsHeader> parseSafetensors(std::span<const std::byte> head,
                                             uint64_t fileSize);

/// A file opened for reading. Tensor bytes are read with pread, so a file that
/// shrinks under the reader is an error and not a bus fault.
class SafetensorsFile {
public:
  static StatusOr<SafetensorsFile> open(const std::string &path);
  /// Presents the tensors of another format's file: each has a source.
  static SafetensorsFile of(const std::string &path,
                            std::vector<SafetensorsEntry> tensors);
  SafetensorsFile(SafetensorsFile &&other) noexcept;
  SafetensorsFile &operator=(SafetensorsFile &&other) noexcept;
  ~SafetensorsFile();

  const std::string &path() const { return filePath; }
  const SafetensorsHeader &header() const { return parsed; }
  /// Copies the tensor's bytes from `offset` on into `out`; the range must lie
  /// within the tensor.
  Status read(const SafetensorsEntry &entry, uint64_t offset,
              std::span<std::byte> out) const;

private:
  SafetensorsFile() = default;
  std::string filePath;
  SafetensorsHeader parsed;
  int fd = -1;
  uint64_t fileSize = 0;
};

/// Called with every piece of a file in order.
class SafetensorsSink {
public:
  virtual ~SafetensorsSink() = default;
  virtual Status write(std::span<const std::byte> bytes) = 0;
};

/// One tensor to write. `emit` writes its `size` bytes (row-major,
/// little-endian) to the sink, possibly in pieces, so that a tensor on a device
/// needs no second copy in memory.
struct SafetensorsTensor {
  std::string name;
  SafetensorsType type;
  std::vector<uint64_t> shape;
  uint64_t size;
  std::function<Status(SafetensorsSink &)> emit;
};

/// Writes the tensors sorted by (descending type, name), header padded with
/// spaces to a multiple of 8: byte for byte what the reference writes. An emit
/// that writes more or less than its `size` is an error.
Status writeSafetensors(SafetensorsSink &sink,
                        std::vector<SafetensorsTensor> tensors,
                        const std::map<std::string, std::string> &metadata);

/// A model's weights: one .safetensors file, a directory with
/// model.safetensors, or one with model.safetensors.index.json and its shards.
/// Weights of F8_E4M3 with scales (Float8Weights.h) and of MXFP4
/// (Mxfp4Weights.cpp) are presented dequantized to bf16, without their scales.
class SafetensorsModel {
public:
  static StatusOr<SafetensorsModel> open(const std::string &path);
  /// The weights of a file of another format.
  static SafetensorsModel of(SafetensorsFile file);
  struct Location {
    const SafetensorsFile *file;
    const SafetensorsEntry *entry;
  };
  /// Name → location, over all shards.
  const std::map<std::string, Location, std::less<>> &tensors() const {
    return byName;
  }
  /// All that was opened, those that have only scales included.
  const std::vector<std::unique_ptr<SafetensorsFile>> &files() const {
    return opened;
  }
  /// What config.json said of how the files are to be read; mostly empty.
  const std::string &reading() const { return readAs; }

private:
  Status addShards(const std::string &directory, const std::string &indexPath);
  /// Puts bf16 in the place of 8-bit floats.
  Status dequantizeFloat8(const std::string &directory);
  /// The same of blocks of 4-bit floats.
  Status dequantizeMxfp4();
  std::vector<std::unique_ptr<SafetensorsFile>> opened;
  std::vector<std::unique_ptr<SafetensorsEntry>> dequantized;
  std::map<std::string, Location, std::less<>> byName;
  std::string readAs;
};

} // namespace tessera
