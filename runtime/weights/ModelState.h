// The interface to a compiled model's state, tensor by tensor, for readers and
// writers of weights.
#pragma once
#include "runtime/data/Safetensors.h"
#include "runtime/support/QuantizedLayout.h"
#include "runtime/support/Status.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class StateRole : uint8_t { parameter, optimizer, counter, cache };

/// Where values or scales of quantized weights come from.
struct QuantizedPart {
  std::string source; ///< the checkpoint's matrix
  bool isScales;      ///< otherwise the values
  QuantizedLayout layout;
  bool transposed; ///< the checkpoint has [columns, rows]
  /// Matrices of a stack (StateParts.h), whose rows follow each other; 0: one
  /// matrix, whose micropanels are the tensor's from `firstMicropanel` on.
  int64_t stack = 0;
  int64_t firstMicropanel = 0;
};

struct StateTensor {
  std::string name; ///< in checkpoints: "transformer.wte.weight", "….exp_avg"
  SafetensorsType type;
  std::vector<uint64_t> shape;
  StateRole role;
  uint64_t size; ///< in bytes
  std::optional<QuantizedPart> quantized = {};
};

class ModelState {
public:
  virtual ~ModelState() = default;
  virtual const std::vector<StateTensor> &state() const = 0;
  /// The command that compiles this model again, for messages; may be empty.
  virtual std::string_view rebuildCommand() const { return {}; }

  /// Copies bytes [offset, offset + out.size()) of the tensor of state() that
  /// has the name.
  virtual Status readState(const StateTensor &tensor, uint64_t offset,
                           std::span<std::byte> out) = 0;
  virtual Status writeState(const StateTensor &tensor, uint64_t offset,
                            std::span<const std::byte> bytes) = 0;

  /// The bytes of a tensor of state() if they are in host memory, writable by
  /// several threads at once; otherwise empty.
  virtual std::span<std::byte> stateInMemory(const StateTensor &) { return {}; }

  /// Calls `use` with each part of bytes [offset, offset + size) that this
  /// process has, in the order of `offset`; writeState() ignores the others.
  virtual Status
  forEachOwn(const StateTensor & /*tensor*/, uint64_t offset, uint64_t size,
             const std::function<Status(uint64_t offset, uint64_t size)> &use) {
    return use(offset, size);
  }

  /// The tensor of that name, or null.
  const StateTensor *find(std::string_view name) const;
};

/// The bytes from the first parameter to the last where they are in the host's
/// memory, from a huge page on, and nothing else of the state is between them;
/// otherwise none.
std::span<std::byte> parametersInMemory(ModelState &model);

} // namespace tessera
