#include "runtime/infer/PagedModel.h"

namespace tessera {

Status checkPrompt(int64_t tokens, const DecoderShape &shape) {
  if (!shape.hasWholePrompts || tokens <= shape.chunk)
    return Status::success();
  return Status::error("the prompt has {} tokens, which see each other "
                       "(attention.prompts: bidirectional), and at most {} are "
                       "read at once; for a model directory, raise it by --set "
                       "inference.chunk=N",
                       tokens, shape.chunk);
}

} // namespace tessera
