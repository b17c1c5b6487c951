// The GGUF container (versions 2 and 3, little-endian), read in place.
//
//   "GGUF" | u32 version | u64 tensors | u64 pairs
//   pairs:    key | u32 kind | value        (text: u64 length | bytes)
//   tensors:  name | u32 rank | u64 dims... | u32 type | u64 offset
//   padding to general.alignment (32) | the tensors' bytes
//
// Source: docs/gguf.md of ggml-org/ggml. Stricter than that: arrays within
// arrays, names that stand twice, and tensors that overlap are refused.
#pragma once
#include "runtime/data/gguf/GgufTypes.h"
#include "runtime/support/MappedFile.h"
#include "runtime/support/Status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

/// What a value is, in the file's numbers.
enum class GgufKind : uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  Text,
  Array,
  U64,
  I64,
  F64
};
std::string_view name(GgufKind kind);

/// A value of the metadata; strings point into the file.
class GgufValue {
public:
  GgufKind kind() const { return kindOf; }
  /// Sets `to` if the value is of such a kind, and says so. Whole numbers of
  /// any width are read as either of the two, if they fit.
  bool get(bool &to) const;
  bool get(uint64_t &to) const;
  bool get(int64_t &to) const;
  bool get(double &to) const; ///< of F32 and F64
  bool get(std::string_view &to) const;
  bool isArray() const { return kindOf == GgufKind::Array; }
  GgufKind elementKind() const { return elementOf; }
  /// Elements of an array, 0 of others.
  std::size_t size() const { return elements; }
  /// Element `i` of an array.
  GgufValue at(std::size_t i) const;

private:
  friend class GgufReader;
  GgufKind kindOf = GgufKind::Bool, elementOf = GgufKind::Bool;
  std::size_t elements = 0;
  std::span<const std::byte> bytes; ///< of a number, or of an array of numbers
  std::vector<std::string_view> strings; ///< of a text (one), or of an array
};

struct GgufTensor {
  std::string_view name;
  /// Row-major, the last dimension is contiguous: the file has them reversed.
  std::vector<uint64_t> shape;
  GgufType type = GgufType::F32;
  uint64_t offset = 0; ///< from the file's beginning
  uint64_t size = 0;   ///< in bytes
};

class GgufFile {
public:
  static StatusOr<GgufFile> open(const std::string &path);
  /// The same of bytes in memory, which outlive the result; `where` begins
  /// errors.
  static StatusOr<GgufFile> parse(std::span<const std::byte> bytes,
                                  const std::string &where);

  const std::string &where() const { return path; }
  uint32_t version() const { return fileVersion; }
  const std::map<std::string_view, GgufValue> &metadata() const {
    return values;
  }
  const std::map<std::string_view, GgufTensor> &tensors() const {
    return byName;
  }
  /// Null if there is none of that name.
  const GgufValue *find(std::string_view key) const;
  const GgufTensor *tensor(std::string_view name) const;
  std::span<const std::byte> bytes(const GgufTensor &tensor) const {
    return contents.subspan(tensor.offset, tensor.size);
  }
  /// Copies the tensor's bytes from `offset` on, which must be there. A file
  /// that shrinks under the reader is an error.
  Status read(const GgufTensor &tensor, uint64_t offset,
              std::span<std::byte> out) const;

private:
  friend class GgufReader;
  GgufFile() = default;
  std::string path;
  uint32_t fileVersion = 0;
  MappedFile mapping; // empty after parse()
  std::span<const std::byte> contents;
  std::map<std::string_view, GgufValue> values;
  std::map<std::string_view, GgufTensor> byName;
};

} // namespace tessera
