// What a server cannot do is said before anything is compiled. test/e2e has
// servers that run.
#include "compiler/api/ServeModel.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

class ServeModel : public ::testing::Test {
protected:
  ServeModel() {
    settings.choice.place = TESSERA_SPECS "/tiny-gpt2";
    settings.serve.port = 0;
    settings.note = [this](std::string_view line) { notes.emplace_back(line); };
  }
  std::string error() {
    const Status status = serveModel(settings, /*ranks=*/nullptr);
    EXPECT_TRUE(notes.empty()) << notes[0]; // nothing was compiled
    return std::string(status.message());
  }

  ServeSettings settings;
  std::vector<std::string> notes;
};

TEST_F(ServeModel, TrainsOnlyAdaptersOfItsOwn) {
  settings.training.directory = "adapters";
  EXPECT_EQ(error(), "--train-directory has no effect without --train N");
  settings.training.adapters = 1;
  settings.adapters.slots = 1;
  EXPECT_EQ(error(), "--train has slots for the adapters that it trains; omit "
                     "--adapter and --adapter-slots");
}

TEST_F(ServeModel, KnowsWhatEncodersCannotDo) {
  settings.choice.place = TESSERA_SPECS "/minilm-l6";
  settings.adapters.slots = 1;
  EXPECT_EQ(error(),
            "--adapter and --train apply only to models that generate text; '" +
                settings.choice.place + "' does not");
  settings.adapters.slots = 0;
  settings.serve.engine.scheduler.drafts = 4;
  const std::string drafted =
      "--speculate, --draft and --kv-pages apply only to models that generate "
      "text; '" +
      settings.choice.place + "' does not";
  EXPECT_EQ(error(), drafted);
  settings.serve.engine.scheduler.drafts = 0;
  settings.draft = TESSERA_SPECS "/tiny-gpt2";
  EXPECT_EQ(error(), drafted);
}

TEST_F(ServeModel, TakesItsAddressFirst) {
  settings.choice.place = "nowhere";
  settings.serve.host = "nowhere.invalid";
  EXPECT_NE(error().find("nowhere.invalid"), std::string::npos) << error();
}

} // namespace
} // namespace tessera
