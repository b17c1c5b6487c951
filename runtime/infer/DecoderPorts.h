// What the programs of a compiled model that decodes take and give: the sizes
// that they were compiled for, read from their ports and states.
#pragma once
#include "runtime/hal/Session.h"
#include "runtime/infer/PagedModel.h"

#include <string>

namespace tessera {

/// An output of programs with inference.numerics: training.
inline constexpr std::string_view kLogSums = "log_sums";

struct DecoderPorts {
  DecoderShape shape;
  std::vector<int64_t> prompts; ///< tokens T of programs prefill_T, ascending
  int64_t tableColumns = 0;     ///< of block tables
  int64_t allowedWords = 0;     ///< of a mask of tokens
  bool hasLogSums = false;
};

/// Names of programs: of a prompt's chunk of up to so many tokens, and of a
/// token of each of up to so many sequences.
std::string prefillOf(int64_t tokens);
std::string decodeOf(int64_t sequences);

/// Checks that the session's programs have the inputs, outputs and states that
/// decoding needs.
StatusOr<DecoderPorts> readDecoderPorts(const hal::Session &session);

} // namespace tessera
