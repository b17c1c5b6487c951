// Generation from a trained run or a Hugging Face directory, for `tessera
// generate`. With prefill and decode programs each token is computed once;
// without them, every token runs the whole logits program.
#pragma once
#include "runtime/data/tokenizer/Tokenizer.h"
#include "runtime/generate/InferenceRanks.h"
#include "runtime/generate/PackagedModel.h"
#include "runtime/infer/Decoder.h"
#include "runtime/infer/Sampler.h"
#include "runtime/support/StartPhases.h"
#include "runtime/train/RunDirectory.h"
#include "runtime/train/SessionModel.h"
#include "runtime/weights/WeightCache.h"
#include "runtime/weights/WeightFactors.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

/// Where the weights of a model directory are cached between starts.
struct WeightsCache {
  std::string folder; ///< the user's cache folder; empty: none
  bool reads = false, writes = false;
  std::function<void(std::string_view)> note; ///< receives one line per message
  /// Set if the weights were read and may be cached: call WeightCache::store
  /// when there is time.
  std::optional<WeightCache> unkept = {};
  std::string mapped = {}; ///< the cache file, if they came from it
};

struct GenerateOptions {
  /// An artifact of the run's model that was compiled with --mode infer; empty:
  /// the run's own program.
  std::string program;
  /// Notified when memory is allocated and when weights are loaded; may be
  /// null.
  StartPhases *phases = nullptr;
  WeightsCache *weights = nullptr; ///< of a model directory; may be null
  /// Factors for a model directory's weights. Null where `weights` is set,
  /// since the weight cache is shared.
  const WeightFactors *factors = nullptr;
  int32_t adapter = -1; ///< slot of inference programs; -1: none
  std::string prompt;   ///< its special tokens are recognized
  uint64_t maxTokens = 64;
  SamplingOptions sampling;
  bool ignoreEnd = false; ///< continue after an end token
  /// Frame the prompt as the tokenizer's post-processor says, such as with a
  /// begin-of-sequence token: Hugging Face models were trained so, runs were
  /// not.
  bool framed = false;
  /// First token of an empty prompt where neither the frame nor the tokenizer
  /// has one.
  std::optional<int32_t> startToken;
  /// Tokens that end the output; empty: the tokenizer's end-of-text token.
  std::vector<int32_t> endTokens;
  /// Structured output; null: unconstrained. Not reusable.
  std::shared_ptr<TokenGuide> guide;
  std::string device = "cpu"; ///< see hal::createDevice
  unsigned threads = 0;       ///< 0: all processors
  /// Of a CPU, instead of new threads (DeviceOptions); may be null.
  std::shared_ptr<hal::ThreadPool> pool = {};
  bool profile = false; ///< time each step of the programs
  /// Those of the program's mesh, of which this process is one; null: it is
  /// the only one.
  InferenceRanks *ranks = nullptr;
};

struct GenerateResult {
  std::string checkpoint; ///< "step-000100"; a model directory's path
  uint64_t promptTokens = 0;
  /// The leading prompt tokens that did not fit the context.
  uint64_t droppedTokens = 0;
  uint64_t context = 0;        ///< of the model, in tokens
  std::vector<int32_t> tokens; ///< generated, including the end token
  bool ended = false;          ///< by an end token
  double seconds = 0;
};

/// Receives output as it becomes certain, always whole UTF-8 characters.
using TextSink = std::function<void(std::string_view)>;

/// Predicts the next token of a sequence.
struct TextModel {
  int64_t vocab = 0;
  /// Tokens that it can read at once, and how many of the last ones it reads
  /// again when a longer sequence exceeds them.
  int64_t context = 0, rereads = 0;
  /// Logits [vocab] of the token after `text`, valid until the next call. Each
  /// call extends the text of the last one.
  std::function<StatusOr<std::span<const float>>(std::span<const int32_t> text)>
      next;
  /// Samples that token (drawNext); empty if the model only computes logits.
  std::function<StatusOr<int32_t>(std::span<const int32_t> text,
                                  Sampler &sampler, int64_t choices,
                                  uint64_t draw, const TokenMask *allowed)>
      choose = {};
};

/// By the model's logits program, which reads the last T tokens of a longer
/// text.
TextModel scoringModel(TrainModel &model);
/// By one sequence of the decoder. Whenever the context is full, the last half
/// of a context is read again. The decoder must outlive the model.
TextModel decodingModel(Decoder &decoder);

/// Generates after the prompt's tokens. An empty prompt starts a document: with
/// the frame's tokens, or else after the tokenizer's end-of-text token, or else
/// after `startToken`. If there is none of them, it is an error.
StatusOr<GenerateResult> generateText(const TextModel &model,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink);

/// A run directory, and optionally one of its checkpoints.
struct RunPath {
  std::string run, checkpoint;
  std::string program() const { return run + "/" + kProgramFile; }
};
/// `path` is a run directory, or one checkpoint of it, RUN/step-000100. If that
/// checkpoint is missing, the error lists the existing ones. RUN@promoted is
/// the one that RUN/promoted names.
StatusOr<RunPath> resolveRun(const std::string &path);

/// Checks the options, the run's tokenizer and a checkpoint, as far as possible
/// without a model.
Status checkGenerate(const RunPath &place, const GenerateOptions &options);

/// A run's program with the weights of its checkpoint.
struct OpenedRun {
  std::unique_ptr<SessionModel> model;
  std::string checkpoint; ///< "step-000100"
};
/// The program of `options`, or the run's own. `note` receives one line for
/// each damaged checkpoint.
StatusOr<OpenedRun> openRun(const RunPath &place,
                            const GenerateOptions &options,
                            const TextSink &note);

/// generateText with the files of a run directory: program.tsr, tokenizer.json
/// and the newest intact checkpoint. `path` may also be one checkpoint,
/// RUN/step-000100. `note` receives one line for each damaged checkpoint.
StatusOr<GenerateResult> generateFromRun(const std::string &path,
                                         const GenerateOptions &options,
                                         const TextSink &sink,
                                         const TextSink &note);

/// Loads a Hugging Face directory, or an opened GGUF file, into the program of
/// `options`, which was compiled for its config.json. Every parameter must
/// exist in its shape, and every tensor must be a parameter or be known to
/// follow from some.
StatusOr<std::unique_ptr<SessionModel>>
openModelDirectory(const WeightFiles &weights, const GenerateOptions &options);

/// Opens a packaged model with the device and the threads of `options`.
StatusOr<std::unique_ptr<SessionModel>>
openPackagedModel(const PackagedModel &package, const GenerateOptions &options);

/// generateText with an opened model: by its prefill and decode programs, or
/// else by `logits`.
StatusOr<GenerateResult> generateWith(SessionModel &model, bool decodes,
                                      const tokenizer::Tokenizer &tokenizer,
                                      const GenerateOptions &options,
                                      const TextSink &sink);

} // namespace tessera
