// What tests of load_model share: one checkpoint in a temporary folder, all of its tensors zeros.
// Every refusal that they see is one line that begins with the checkpoint's path.
#pragma once

#include "model/arch.h"
#include "support/temporary_folder.h"
#include "weights/open.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <optional>

namespace kapitsa::model {

using Shapes = std::map<std::string, std::vector<int64_t>>;

inline std::vector<std::byte> zeros(const std::vector<int64_t>& shape) {
  const int64_t n = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return std::vector<std::byte>(static_cast<size_t>(n) * sizeof(float));
}

class LoadModelTest : public ::testing::Test {
protected:
  // What load_model answers; "" for a success, which is kept.
  std::string error_of(const std::filesystem::path& path, bool mtp = true) {
    model_.reset();
    auto file = weights::open_checkpoint(path);
    EXPECT_TRUE(file.ok()) << file.error().message;
    if (!file) return "";
    file_.emplace(std::move(*file));
    auto model = load_model(*file_, {.mtp = mtp});
    if (!model) {
      EXPECT_THAT(model.error().message, ::testing::StartsWith(path.string() + ": "));
      EXPECT_THAT(model.error().message, ::testing::Not(::testing::HasSubstr("\n")));
      return model.error().message;
    }
    model_.emplace(std::move(*model));
    const Status valid = plan::validate(model_->plan);
    EXPECT_TRUE(valid.ok()) << valid.error().message;
    return "";
  }

  template <typename Op>
  const Op* first() const {
    for (const plan::Step& step : model_->plan.routines()[0].steps)
      if (const Op* op = std::get_if<Op>(&step.op)) return op;
    return nullptr;
  }

  float first_value(const std::string& weight_name) const {
    for (const plan::Weight& weight : model_->plan.weights()) {
      if (weight.name != weight_name) continue;
      float value = 0.0F;
      std::memcpy(&value, weight.data.data(), sizeof value);
      return value;
    }
    ADD_FAILURE() << "no weight " << weight_name;
    return 0.0F;
  }

  test::TemporaryFolder folder_;
  std::optional<weights::Checkpoint> file_;
  std::optional<Model> model_;
};

}  // namespace kapitsa::model
