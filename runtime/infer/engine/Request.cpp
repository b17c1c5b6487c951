#include "runtime/infer/engine/Request.h"

namespace tessera {

std::string_view name(FinishReason reason) {
  switch (reason) {
  case FinishReason::stop:
    return "stop";
  case FinishReason::length:
    return "length";
  case FinishReason::cancelled:
    return "cancelled";
  case FinishReason::deadline:
    return "deadline";
  case FinishReason::error:
    return "error";
  case FinishReason::form:
    return "form";
  }
  return "error";
}

} // namespace tessera
