#!/usr/bin/env bash
# From a file and a list of words to scores, five seeds of each recipe, with the commands of data/README.md:
#
#     bash data/sweeps/own_data.sh brands  FOLDER            # the example's three labels, with each recipe
#     bash data/sweeps/own_data.sh brands_one_side FOLDER    # only the brands that go with one label are hidden
#     bash data/sweeps/own_data.sh reviews FOLDER RELEASES   # IMDB-CAD's original half
#     MODEL=FOLDER bash data/sweeps/own_data.sh reviews_base FOLDER RELEASES  # the same with a base-sized model
#     bash data/sweeps/own_data.sh nli     FOLDER RELEASES   # MNLI, negations in the hypothesis
#
# Goes on where it stopped; FOLDER/NAME.csv then has the lines of data/results/own_data.csv. The plan is in
# data/results/PLAN.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
name=$1 folder=$2 releases=${3:-}
mkdir -p "$folder"
cad=$releases/imdb_cad/sentiment
case $name in
brands | brands_one_side)
    rows=(data/example/reviews.csv --text review --label opinion --test data/example/conflicting.csv)
    words="Zorvik Malden Tolmar Quenby Harlo Vesper Brask Ondine Pellow"
    tuned="mask_tuning --set alpha"
    recipes=(deleted masks_left perturb_first "$tuned=0" "$tuned=0.1" "$tuned=0.6" "deleted --epochs 6"
        "masks_left --epochs 6" "perturb_first --epochs 6" "perturb_first --set barred=true"
        "$tuned=0 --set barred=true" "$tuned=0.1 --set barred=true" "$tuned=0.6 --set barred=true")
    if [ "$name" = brands_one_side ]; then
        words="Zorvik Malden Tolmar" recipes=(deleted masks_left)
    fi
    ;;
reviews | reviews_base) # of the 44 words that `suspects` finds, those that name a kind of film, or what every film has
    rows=("$cad/orig/train.tsv" --text Text --label Sentiment --dev "$cad/orig/dev.tsv" --max-length 256 --epochs 2
        --test "$cad/new/test.tsv" --test "$releases/imdb_contrast/IMDb/data/test_contrast.tsv")
    words="horror romance romantic plot acting performances minutes money young"
    recipes=(deleted "mask_tuning --set alpha=0.1")
    if [ "$name" = reviews ]; then
        recipes+=(masks_left)
    else
        rows+=(--model "$MODEL" --epochs 3) # the last of two --epochs counts
    fi
    ;;
nli) # of the 26 words that `suspects` finds, negations and what stands with them
    rows=("$releases/mnli/MNLI/train.tsv" --text sentence1 --text sentence2 --label gold_label
        --test "$releases/mnli/MNLI/dev_matched.tsv" --epochs 2)
    words="no never any not nothing anything don't doesn't"
    recipes=(deleted masks_left)
    ;;
esac
tr ' ' '\n' <<<"$words" >"$folder/$name.txt"
for seed in 0 1 2 3 4; do
    for recipe in fine_tuning "${recipes[@]}"; do
        label=${recipe//--set /}
        out=$folder/$name/${label//--/},$seed
        # shellcheck disable=SC2086  # a recipe is a method and its options
        [ -e "$out/scores.csv" ] || python -m mtlib train "${rows[@]}" --mask-words "$folder/$name.txt" \
            --out "$out" --seed "$seed" --alone --method $recipe
        rm -f "$out"/*.safetensors
    done
done
{
    echo "data,recipe,seed,set,rows,arm,n,accuracy,accuracy_low,accuracy_high,macro_f1,macro_f1_low,macro_f1_high"
    for scores in "$folder/$name"/*/scores.csv; do
        sed "1d; s/^/$name,$(basename "$(dirname "$scores")"),/" "$scores"
    done
} >"$folder/$name.csv"
