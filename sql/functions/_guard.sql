-- The guard: the cheap facts of two texts, compared. It reads no locale: no class of regular expressions that depends
-- on one, comparisons under collation "C", upper case by an explicit list of letters.

-- One word -> what it is: s grammar, p preposition or other marker of a role, & conjunction, n negation, q word that
-- only joins a negation in languages of negative concord, #v number, ~v number that is also an everyday word,
-- *v multiplier, ov ordinal, mv month, Mv month that is also an everyday word, wv weekday, $v currency, uv unit,
-- tv clock suffix, % per cent, S common subject that is no name. Of a word in several groups the highest
-- rank holds. Folded to a constant when a caller is planned.
create or replace function memfold._guard_lexicon()
returns jsonb
language sql
immutable
parallel safe
begin atomic
    select pg_catalog.jsonb_object_agg(pg_catalog.split_part(entry.word, '=', 1),
               groups.class || pg_catalog.split_part(entry.word, '=', 2)
               order by groups.rank)
    from (values
        (3, 's', $words$
            . but however mr mrs ms dr madam sir a an the this that these those is are was were be been being am do
            does did done has have had having will would shall should can could may might ca wo i me my mine you
            your yours he him his she her hers it its we us our ours they them their theirs who whom whose which
            what there here also too very really just so then quite itself himself herself themselves oneself 's der
            die das den dem des ein eine einen einem einer eines ist sind war waren sein seine seinen ihr ihre ihren
            er sie es ich wir mich mir dir dich hat haben hatte hatten wird werden wurde wurden dass auch sehr sich
            le la les l un une des du est sont était être a as ai ont avait il elle ils elles on je tu nous vous ce
            cet cette ces son sa ses mon ma mes leur leurs qui que se très aussi y el los las lo uno una unos unas
            es son era ser está están estaba ha han su sus mi mis tu te muy también se gli i il uno è sono era suo
            sua suoi sue mio mia molto anche che o os as um uma uns umas é são era está estão seu sua seus suas meu
            minha muito também это этот эта его её их он она они я мы вы был была было были есть свой свою тоже
            очень de het een zijn haar wordt ook$words$),
        (1, 'S', $words$
            user users customer customers client clients agent agents assistant bot system team teams employee
            employees person people man woman someone everyone everybody anyone patient student speaker author
            caller subject participant developer developers engineer engineers manager member members owner admin
            company service server database app application project meeting today tomorrow yesterday currently now
            likes prefers loves enjoys works lives uses wants needs owns hates dislikes drinks eats plays speaks
            studies moved plans vive reside mora abita prefiere prefere preferisce préfère toma bebe beve boit
            trabaja trabalha lavora travaille utiliza utilizza utilise posee possui possiede possède quiere quer
            vuole veut habla fala parla parle estudia estuda studia étudie mange mangia viaja viaggia voyage juega
            joga gioca joue odia odeia déteste ama aime adora adore habite vit живёт предпочитает пьёт работает
            использует любит говорит изучает учит benutzer benutzerin nutzer nutzerin kunde kundin anwender
            anwenderin utilisateur utilisatrice client cliente usuario usuaria utente usuário usuária пользователь
            пользовательница клиент gebruiker$words$),
        (4, 'p', $words$
            to at by from with in into on onto of off for about over under than as after before during through
            between against towards toward via per since until near behind above below around within like because if
            when while zu zum zur bei beim von vom mit in im ins auf aus nach für über unter als seit bis um durch
            gegen vor hinter neben zwischen wegen wenn weil à au aux de d en dans chez par pour avec sur sous vers
            depuis comme contre entre al del en con por para sobre desde hasta como contra entre di da dal dalla
            dallo in nel nella con su per tra fra come del della dello dei degli delle al alla em na nos nas ao à do
            da dos das com por pelo pela para sobre desde até como в во на с со к ко у о об от до из за под над при
            для по через перед чем как в$words$),
        (5, '&', $words$
            and or & , plus und oder sowie et ou y e u ed и или 和 与 跟 及 或 与 と や$words$),
        (8, 'n', $words$
            not no never without none nobody nothing nowhere neither cannot non aint lack lacks lacking lacked nicht
            kein keine keinen keinem keiner keines nie niemals ohne niemand nichts weder nirgends nirgendwo ne sans
            sin não sem senza не нет без нельзя niet geen nooit zonder inte ingen aldrig utan ikke aldri uden nem
            tidak bukan tanpa không chưa değil yok δεν δε όχι ποτέ χωρίς לא אין בלי לא لا لم لن ليس ليست بدون नहीं
            मत बिना ні нема nie bez 안$words$),
        (7, 'q', $words$
            pas jamais rien aucun aucune nunca nada nadie ningún ninguno ninguna jamás tampoco nessuno nessuna
            niente nulla ninguém nenhum nenhuma никогда ничего никто никого nigdy nikt nic$words$),
        (6, '#', $words$
            zero=0 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11 twelve=12 thirteen=13
            fourteen=14 fifteen=15 sixteen=16 seventeen=17 eighteen=18 nineteen=19 twenty=20 thirty=30 forty=40
            fifty=50 sixty=60 seventy=70 eighty=80 ninety=90 zwei=2 drei=3 vier=4 fünf=5 sechs=6 sieben=7 neun=9
            zehn=10 zwölf=12 dreizehn=13 vierzehn=14 fünfzehn=15 sechzehn=16 siebzehn=17 achtzehn=18 neunzehn=19
            zwanzig=20 dreißig=30 vierzig=40 fünfzig=50 sechzig=60 siebzig=70 achtzig=80 neunzig=90 deux=2 trois=3
            quatre=4 cinq=5 sept=7 huit=8 dix=10 onze=11 douze=12 treize=13 quatorze=14 quinze=15 seize=16 vingt=20
            trente=30 quarante=40 cinquante=50 soixante=60 cero=0 dos=2 tres=3 cuatro=4 cinco=5 seis=6 siete=7
            ocho=8 nueve=9 diez=10 doce=12 trece=13 catorce=14 quince=15 dieciséis=16 diecisiete=17 dieciocho=18
            diecinueve=19 veinte=20 treinta=30 cuarenta=40 cincuenta=50 sesenta=60 setenta=70 ochenta=80 noventa=90
            tre=3 quattro=4 cinque=5 sette=7 otto=8 dieci=10 undici=11 dodici=12 tredici=13 quattordici=14
            quindici=15 sedici=16 diciassette=17 diciotto=18 diciannove=19 venti=20 trenta=30 quaranta=40
            cinquanta=50 sessanta=60 settanta=70 ottanta=80 novanta=90 dois=2 duas=2 três=3 quatro=4 sete=7 oito=8
            dez=10 doze=12 treze=13 dezesseis=16 dezessete=17 dezoito=18 dezenove=19 vinte=20 trinta=30 quarenta=40
            cinquenta=50 sessenta=60 noventa=90 два=2 две=2 двух=2 три=3 трёх=3 четыре=4 пять=5 шесть=6 семь=7
            восемь=8 девять=9 десять=10 одиннадцать=11 двенадцать=12 двадцать=20 тридцать=30 сорок=40 пятьдесят=50
            twee=2 drie=3 vijf=5 zes=6 zeven=7 negen=9 tien=10$words$),
        (6, '~', $words$
            one=1 eins=1 acht=8 elf=11 neuf=9 due=2 sei=6 nove=9 один=1 одна=1 null=0$words$),
        (6, '*', $words$
            hundred=100 thousand=1000 million=1000000 billion=1000000000 dozen=12 k=1000 bn=1000000000 mn=1000000
            hundert=100 tausend=1000 millionen=1000000 milliarden=1000000000 cent=100 mille=1000 millions=1000000
            milliards=1000000000 cien=100 ciento=100 mil=1000 millones=1000000 millón=1000000 cento=100 mila=1000
            milioni=1000000 cem=100 milhões=1000000 milhão=1000000 сто=100 тысяча=1000 тысяч=1000 тысячи=1000
            миллион=1000000 миллиона=1000000 миллионов=1000000$words$),
        (2, 'o', $words$
            first=1 second=2 third=3 fourth=4 fifth=5 sixth=6 seventh=7 eighth=8 ninth=9 tenth=10 erste=1 ersten=1
            erster=1 zweite=2 zweiten=2 zweiter=2 dritte=3 dritten=3 dritter=3 vierte=4 vierten=4 premier=1
            première=1 deuxième=2 troisième=3 quatrième=4 primero=1 primera=1 segundo=2 segunda=2 tercero=3
            tercera=3 primeiro=1 primeira=1 terceiro=3 terceira=3 первый=1 первая=1 второй=2 вторая=2 третий=3
            третья=3$words$),
        (6, 'm', $words$
            january=1 february=2 april=4 june=6 july=7 august=8 september=9 october=10 november=11 december=12
            januar=1 jänner=1 februar=2 märz=3 juni=6 juli=7 oktober=10 dezember=12 janvier=1 février=2 avril=4
            juin=6 juillet=7 août=8 septembre=9 octobre=10 novembre=11 décembre=12 enero=1 febrero=2 marzo=3 abril=4
            mayo=5 junio=6 julio=7 agosto=8 septiembre=9 octubre=10 noviembre=11 diciembre=12 gennaio=1 febbraio=2
            aprile=4 maggio=5 giugno=6 luglio=7 settembre=9 ottobre=10 novembre=11 dicembre=12 janeiro=1 fevereiro=2
            março=3 maio=5 junho=6 julho=7 setembro=9 outubro=10 novembro=11 dezembro=12 январь=1 января=1 январе=1
            февраль=2 февраля=2 феврале=2 марта=3 марте=3 апрель=4 апреля=4 апреле=4 мая=5 июнь=6 июня=6 июне=6
            июль=7 июля=7 июле=7 август=8 августа=8 августе=8 сентябрь=9 сентября=9 сентябре=9 октябрь=10 октября=10
            октябре=10 ноябрь=11 ноября=11 ноябре=11 декабрь=12 декабря=12 декабре=12$words$),
        (6, 'M', $words$
            may=5 march=3 mai=5 mars=3 jan=1 feb=2 mar=3 apr=4 jun=6 jul=7 aug=8 sep=9 oct=10 okt=10 nov=11 dec=12
            dez=12 ene=1 abr=4 ago=8 dic=12 févr=2 avr=4 juil=7 déc=12 май=5 мае=5 март=3$words$),
        (6, 'w', $words$
            monday=1 tuesday=2 wednesday=3 thursday=4 friday=5 saturday=6 sunday=7 mondays=1 tuesdays=2 wednesdays=3
            thursdays=4 fridays=5 saturdays=6 sundays=7 montag=1 dienstag=2 mittwoch=3 donnerstag=4 freitag=5
            samstag=6 sonnabend=6 sonntag=7 montags=1 dienstags=2 mittwochs=3 donnerstags=4 freitags=5 samstags=6
            sonntags=7 lundi=1 mardi=2 mercredi=3 jeudi=4 vendredi=5 samedi=6 dimanche=7 lundis=1 mardis=2
            mercredis=3 jeudis=4 vendredis=5 samedis=6 dimanches=7 lunes=1 martes=2 miércoles=3 jueves=4 viernes=5
            sábado=6 domingo=7 sábados=6 domingos=7 lunedì=1 martedì=2 mercoledì=3 giovedì=4 venerdì=5 sabato=6
            domenica=7 понедельник=1 понедельникам=1 вторник=2 вторникам=2 среда=3 среду=3 средам=3 четверг=4
            четвергам=4 пятница=5 пятницу=5 пятницам=5 суббота=6 субботу=6 субботам=6 воскресенье=7 воскресеньям=7
            maandag=1 dinsdag=2 woensdag=3 donderdag=4 vrijdag=5 zaterdag=6 zondag=7$words$),
        (2, '$', $words$
            $=$ €=€ £=£ ¥=¥ ₹=₹ ₽=₽ ₩=₩ ₺=₺ ₴=₴ ₪=₪ ฿=฿ usd=$ dollar=$ dollars=$ dólar=$ dólares=$ dollari=$
            доллар=$ доллара=$ долларов=$ eur=€ euro=€ euros=€ евро=€ gbp=£ sterling=£ jpy=¥ yen=¥ cny=yuan rmb=yuan
            yuan=yuan chf=chf franken=chf francs=francs inr=₹ rupee=₹ rupees=₹ rub=₽ ruble=₽ rubles=₽ рубль=₽
            рубля=₽ рублей=₽ krw=₩ cad=cad aud=aud sek=sek nok=nok dkk=dkk pln=pln zloty=pln brl=brl reais=brl
            mxn=mxn peso=peso pesos=peso btc=btc bitcoin=btc eth=eth$words$),
        (2, 'u', $words$
            kg=kg kilo=kg kilos=kg kilogram=kg kilograms=kg kilogramm=kg kilogramme=kg kilogrammes=kg kilogramos=kg
            кг=kg g=g gram=g grams=g gramm=g mg=mg lb=lb lbs=lb pound=lb pounds=lb pfund=lb oz=oz ounce=oz ounces=oz
            t=t tonne=t tonnes=t ton=ton tons=ton km=km kilometer=km kilometers=km kilometre=km kilometres=km
            kilómetros=km kilomètres=km км=km m=m meter=m meters=m metre=m metres=m metros=m mètres=m cm=cm
            centimeter=cm centimeters=cm centimetre=cm centimetres=cm mm=mm millimeter=mm millimeters=mm mile=mi
            miles=mi meilen=mi millas=mi milles=mi ft=ft foot=ft feet=ft inch=in inches=in zoll=in yard=yd yards=yd
            l=l liter=l liters=l litre=l litres=l litros=l ml=ml gallon=gal gallons=gal b=b byte=b bytes=b kb=kb
            mb=mb gb=gb tb=tb kib=kib mib=mib gib=gib tib=tib megabyte=mb megabytes=mb gigabyte=gb gigabytes=gb
            terabyte=tb terabytes=tb °c=°c celsius=°c °f=°f fahrenheit=°f hz=hz khz=khz mhz=mhz ghz=ghz w=w kw=kw
            mw=mw kwh=kwh v=v ms=ms millisecond=ms milliseconds=ms millisekunden=ms sec=s secs=s seconds=s sekunde=s
            sekunden=s secondes=s segundos=s secondi=s секунд=s min=min mins=min minute=min minutes=min minuten=min
            minuto=min minutos=min minuti=min минут=min минуты=min h=h hr=h hrs=h hour=h hours=h stunde=h stunden=h
            heure=h heures=h hora=h horas=h ora=h ore=h час=h часа=h часов=h day=d days=d tag=d tage=d tagen=d
            jour=d jours=d día=d días=d giorno=d giorni=d dia=d dias=d день=d дня=d дней=d week=wk weeks=wk woche=wk
            wochen=wk semaine=wk semaines=wk semana=wk semanas=wk settimana=wk settimane=wk неделя=wk недели=wk
            недель=wk month=mo months=mo monat=mo monate=mo monaten=mo mois=mo mes=mo meses=mo mese=mo mesi=mo
            mês=mo месяц=mo месяца=mo месяцев=mo year=y years=y jahr=y jahre=y jahren=y ans=y année=y années=y año=y
            años=y anno=y anni=y ano=y anos=y год=y года=y лет=y$words$),
        (4, 't', $words$
            am=0 pm=12 uhr=0 o'clock=0 oclock=0$words$),
        (6, '%', $words$
            % percent pct prozent porcento pourcent процент процента процентов$words$)
    ) as groups(rank, class, words)
    cross join lateral pg_catalog.string_to_table(
        pg_catalog.translate(groups.words, E'\n', ' '), ' ') as entry(word)
    where entry.word <> '';
end;
revoke all on function memfold._guard_lexicon() from public;

-- Chinese numerals before a counter as digits, weekdays of Chinese and Japanese as English words.
create or replace function memfold._guard_han_numbers(content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C" := content;
    v_days constant text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}'::text[];
    v_match text[];
    v_total bigint;
    v_digit bigint;
    v_value integer;
begin
    if v_text ~ '[曜期拜周週]' then
        for v_value in 1..7 loop
            v_text := replace(v_text, substr('月火水木金土日', v_value, 1) || '曜', ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := regexp_replace(v_text, '(?:星期|禮拜|礼拜|[周週])(?=[一二三四五六日天])', E'\x03', 'g');
        for v_value in 1..7 loop
            v_text := replace(v_text, E'\x03' || substr('一二三四五六日', v_value, 1), ' ' || v_days[v_value] || ' ');
        end loop;
        v_text := replace(v_text, E'\x03天', ' sunday ');
    end if;
    loop
        v_match := regexp_match(
            v_text, '(一[〇零一二两兩三四五六七八九十百千]{1,9}|[二两兩三四五六七八九十百][〇零一二两兩三四五六七八九十百千]{0,9})'
            || '(?=[个個只隻条條位名张張本年月日号號天岁歲歳点點时時分秒次回台臺件匹杯人枚头頭公里米元円块塊种種家間间套门門])');
        exit when v_match is null;
        v_total := 0;
        v_digit := 0;
        for v_place in 1..length(v_match[1]) loop
            v_value := position(substr(v_match[1], v_place, 1) in '一二三四五六七八九十百千');
            case
                when v_value = 0 then
                    v_digit := case when substr(v_match[1], v_place, 1) in ('两', '兩') then 2 else v_digit * 10 end;
                when v_value < 10 then
                    v_digit := v_digit * 10 + v_value;
                else
                    v_total := v_total + greatest(v_digit, 1) * (10 ^ (v_value - 9))::bigint;
                    v_digit := 0;
            end case;
        end loop;
        v_text := overlay(v_text placing (v_total + v_digit)::text
                          from position(v_match[1] in v_text) for length(v_match[1]));
    end loop;
    return v_text;
end;
$function$;
revoke all on function memfold._guard_han_numbers(text) from public;

-- A text as tokens between single spaces: canonical, words that began with a capital marked by U+0001, contractions
-- written out, hyphens of plain words opened, thousands separators gone, '.' and ',' tokens of their own, every
-- ideograph and every run of katakana a token.
create or replace function memfold._guard_text(content text)
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_text text collate "C";
    v_is_wide boolean;
begin
    v_text := memfold.canonicalize(
        regexp_replace(
            content collate "C",
            '(^|[^A-Za-z0-9À-ɏͰ-ӿԱ-և''’_@./:\\-]|[^A-Za-z0-9À-ɏͰ-ӿԱ-և _@./:]-)'
            || '([A-ZÀ-ÖØ-ÞĀĂĄĆĈĊČĎĐĒĔĖĘĚĜĞĠĢĤĦĨĪĬĮİĲĴĶĹĻĽĿŁŃŅŇŊŌŎŐŒŔŖŘŚŜŞŠŢŤŦŨŪŬŮŰŲŴŶŸŹŻŽΆΈ-ΏΑ-ΫЀ-ЯҐԱ-Ֆ])',
            E'\\1\x01\\2', 'g'),
        'prose/1');

    if v_text !~ '[^ a-z\x01]' then
        return v_text;
    end if;

    v_is_wide := octet_length(v_text) > length(v_text);

    -- one character for what is written in several ways; brackets and quotation marks say nothing here
    v_text := translate(
        v_text,
        U&';!?\FF1B\FF01\FF1F\3002\FF61\FF0C\3001\FF64\2019\2018\02BC\2013\2212\2010\2011\2012'
        || U&'"()[]{}<>*`~|^\\\2026\00B7\2022\00BF\00A1\2014\201C\201D\201E\00AB\00BB\2039\203A'
        || U&'\300C\300D\300E\300F\3010\3011\300A\300B\30FB',
        U&'........,,,''''''-----                                            ');

    if v_is_wide and v_text ~ '[\u2E80-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF]' then
        if v_text ~ '[二两兩三四五六七八九十百曜期拜周週]' then
            v_text := memfold._guard_han_numbers(v_text);
        end if;
        v_text := regexp_replace(
            v_text, '([\u30A1-\u30FA\u30FC]+|[\u2E80-\u30A0\u3400-\u9FFF\uF900-\uFAFF\U00020000-\U0003FFFF])',
            ' \1 ', 'g');
    end if;

    if v_is_wide and v_text ~ '[\u0660-\u0669\u06F0-\u06F9\u0966-\u096F\u09E6-\u09EF\u0E50-\u0E59]' then
        v_text := translate(v_text, '٠١٢٣٤٥٦٧٨٩۰۱۲۳۴۵۶۷۸۹०१२३४५६७८९০১২৩৪৫৬৭৮৯๐๑๒๓๔๕๖๗๘๙',
                            '01234567890123456789012345678901234567890123456789');
    end if;

    if position('''' in v_text) > 0 then
        v_text := replace(replace(replace(v_text, 'can''t', 'can not'), 'won''t', 'will not'), 'n''t', ' not');
        v_text := replace(v_text, 'o''clock', 'oclock');
        v_text := replace(replace(replace(replace(replace(replace(v_text,
            '''re', ' are'), '''ve', ' have'), '''ll', ' will'), '''d ', ' would '), 'i''m ', 'i am '), '''s', ' ''s ');
        v_text := regexp_replace(v_text, '((?:^| )\x01?(?:n|l|d|j|qu|c|s|m|t|un|dell|nell|all|dall|sull|quest))''',
                                 '\1e ', 'g');
        v_text := replace(replace(v_text, ' ''s ', E' \x02 '), '''', ' ');
        v_text := replace(v_text, E'\x02', '''s');
    end if;

    if position('$' in v_text) > 0 or position('%' in v_text) > 0 or v_is_wide and v_text ~ '[€£¥₹₽₩₺₴₪฿]' then
        v_text := regexp_replace(v_text, '(-?)([$€£¥₹₽₩₺₴₪฿])', ' \2 \1', 'g');
        v_text := replace(v_text, '%', ' % ');
    end if;

    if v_text ~ '[0-9]' then
        -- ISO dates keep their hyphens as U+0002; a range is two numbers; 8-year opens, AB-12 does not
        if position('-' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9])([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])(t(?=[0-9]))?',
                                     E'\\1\x02\\2\x02\\3 ', 'g');
            v_text := regexp_replace(v_text, '(?<=(?:^| )[0-9.]+)-(?=[^ 0-9./:@_]{2}|[0-9])', ' ', 'g');
        end if;
        if v_text ~ '[0-9][,''][0-9]' then
            v_text := regexp_replace(v_text, '(?<=[0-9])[,''](?=[0-9]{3}(?![0-9]))', '', 'g');
            v_text := regexp_replace(v_text, '(?<=[0-9]),(?=[0-9])', '.', 'g');
        end if;
        if v_text ~ '[0-9][a-z°]' then
            v_text := regexp_replace(
                v_text,
                '(?<=(?:^|[- ])[0-9.]+)(kg|g|mg|lbs?|oz|km|m|cm|mm|mi|ft|in|l|ml|[kmgt]i?b|[kmg]?hz|k?wh?|ms|'
                || 'min|hrs?|h|d|am|pm|k|bn|mn|°[cf]|[kmg]?bps|mph)(?=[ .,]|$)', ' \1', 'g');
        end if;
    end if;

    if position('-' in v_text) > 0 or position('/' in v_text) > 0 then
        v_text := regexp_replace(
            v_text, '(?<=(?:^| )[^ 0-9./:@_]+)[-/](?=[^ 0-9./:@_]+(?:[ .,:]|$))', ' ', 'g');
        v_text := regexp_replace(v_text, '[-/]+(?= |$)|(?<=^| )-+(?=[^ 0-9.])', ' ', 'g');
    end if;

    if position('.' in v_text) > 0 or position(',' in v_text) > 0 or position(':' in v_text) > 0 then
        -- u.s. and p.m. are words; a stop or comma at the end of a word is a token
        if v_text ~ '[a-z]\.[a-z]' then
            v_text := regexp_replace(
                v_text, '(?<=(?:^| )\x01?[a-z])\.([a-z])\.?(?:([a-z])\.?)?(?=[ ,]|$)', '\1\2', 'g');
        end if;
        if position('..' in v_text) > 0 or position('.,' in v_text) > 0 or position(':.' in v_text) > 0
            or right(v_text, 1) in ('.', ':')
        then
            v_text := regexp_replace(v_text, '[.:]*[.][.:]*(?=[ ,]|$)', ' . ', 'g');
        end if;
        v_text := replace(replace(v_text || ' ', '. ', ' . '), ': ', ' ');
        if position(',' in v_text) > 0 then
            v_text := regexp_replace(v_text, '(?<![0-9]),|,(?![0-9])', ' , ', 'g');
        end if;
    end if;

    return array_to_string(array_remove(string_to_array(v_text, ' '), ''), ' ');
end;
$function$;
revoke all on function memfold._guard_text(text) from public;

create or replace function memfold._guard_classes(tokens text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
begin
    return array(
        select memfold._guard_lexicon() ->> listed.token
        from unnest(tokens) with ordinality as listed(token, place)
        order by listed.place);
end;
$function$;
revoke all on function memfold._guard_classes(text[]) from public;

-- How often a text negates. In languages of negative concord "no ... nunca" is one negation.
create or replace function memfold._guard_negations(content text, classes text[])
returns integer
language plpgsql
immutable
parallel safe
as $function$
declare
    v_count integer := cardinality(array_positions(classes, 'n'));
    v_text text collate "C";
begin
    if v_count = 0 then
        v_count := cardinality(array_positions(classes, 'q'));
    else
        v_text := ' ' || content || ' ';
        v_count := v_count - regexp_count(
            v_text,
            ' (?:not|nicht|non|no|не|niet) (?:only|just|nur|solo|sólo|solamente|soltanto|só|apenas|только|alleen) ');
        if position(' no ' in v_text) > 0
            and v_text ~ ' (?:não|em|da|dos|das|uma|ao|é|são|você|usuário|usuária|à|às) '
        then
            v_count := v_count - regexp_count(v_text, ' no ');
        end if;
    end if;
    if octet_length(content) = length(content) then
        return v_count;
    end if;
    if content collate "C" ~ '[\u3040-\u30FF\u3400-\u9FFF]' then
        v_text := replace(content, ' ', '');
        if v_text ~ '[\u3040-\u309F]' then
            v_text := regexp_replace(
                v_text, '(?:少|すく|つまら|くだら|もったい|かもしれ|違い|ちがい|切)ない|(?:かもしれ|すみ|すい)ません|必ず|かならず|'
                || 'わずか|不便|不安|無料', '', 'g');
            v_count := v_count + regexp_count(
                v_text, 'ない|なかった|なけれ|なきゃ|ません|なく(?!な)|なし|ずに|せず|[わらかたまば]ず|まい|[不無未非]');
        else
            v_text := regexp_replace(
                v_text, '不过|不過|不仅|不僅|不但|不只|不同|差不多|不断|不斷|不久|不错|不錯|了不起|不好意思|对不起|對不起|'
                || '特别|特別|分别|分別|区别|區別|级别|級別|性别|性別|类别|類別|别人|別人|别的|別的|告别|告別|个别|個別|鉴别|'
                || '识别|識別|未来|未來|无论|無論|是不是|有没有|有沒有|不管|不论|不論|(.)不\1', '', 'g');
            v_count := v_count + regexp_count(v_text, '[不没沒无無别別未勿]');
        end if;
    elsif content collate "C" ~ '[\uAC00-\uD7A3]' then
        v_count := v_count + regexp_count(content collate "C", '않|없|아니|못|지 말');
    elsif content collate "C" ~ '[\u0E00-\u0E7F]' then
        v_count := v_count + regexp_count(content collate "C", 'ไม่');
    end if;
    return v_count;
end;
$function$;
revoke all on function memfold._guard_negations(text, text[]) from public;

-- The numbers, dates, versions, currencies, units and identifiers of a text, each as kind, value and weight ('s', or
-- 'w' for words that often mean something else) with U+001F between.
create or replace function memfold._guard_facts(tokens text[], marked text[], classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_facts text[] := '{}'::text[];
    v_months constant text[] := '{january,february,march,april,may,june,july,august,september,october,november,
        december}'::text[];
    v_days constant text[] := '{monday,tuesday,wednesday,thursday,friday,saturday,sunday}'::text[];
    v_total constant integer := cardinality(tokens);
    v_at integer := 0;
    v_token text collate "C";
    v_class text collate "C";
    v_next text collate "C";
    v_kind text collate "C";
    v_value text collate "C";
    v_weight text;
    v_number numeric;
    v_add numeric;
    v_is_word boolean;
    v_part text[];
    v_day integer;
    v_month integer;
    v_year text;
begin
    while v_at < v_total loop
        v_at := v_at + 1;
        v_token := tokens[v_at];
        v_class := classes[v_at];
        if v_class is null then
            continue when v_token !~ '[0-9@_/.:²³¹⁰⁴-⁹]';
        else
            continue when left(v_class, 1) not in ('#', '~', '*', 'o', 'm', 'M', 'w', '$');
        end if;
        v_kind := null;
        v_weight := 's';
        v_day := null;
        v_month := null;
        v_year := null;

        if left(v_class, 1) in ('#', '~', '*') or v_token ~ '^[-+]?[0-9]{1,25}(?:\.[0-9]{1,25})?$' then
            v_is_word := v_class is not null;
            v_number := case when v_is_word then substr(v_class, 2)::numeric else v_token::numeric end;
            if left(v_class, 1) = '~' or (left(v_class, 1) = '*' and length(v_token) < 5) then
                v_weight := 'w';
            end if;
            v_kind := 'numeral';
            if v_number < 1000000 and not v_is_word and v_at < v_total
                and (left(classes[v_at + 1], 1) in ('m', 'M')) and v_token ~ '^[0-9]{1,2}$'
            then
                v_day := v_token::integer;
                v_month := substr(classes[v_at + 1], 2)::integer;
                v_at := v_at + 1;
            elsif v_token ~ '^[0-9]{1,2}$' and v_at + 2 <= v_total and tokens[v_at + 1] in ('.', 'de')
                and left(classes[v_at + 2], 1) in ('m', 'M') and tokens[v_at + 2] not in ('may', 'march')
            then
                v_day := v_token::integer;
                v_month := substr(classes[v_at + 2], 2)::integer;
                v_at := v_at + 2;
            elsif not v_is_word and v_at > 1
                and (tokens[v_at - 1] in ('version', 'versión', 'versione', 'versão', 'версия', 'версии', 'release',
                                          'v', '版')
                     or (position('.' in v_token) > 0 and marked[v_at - 1] <> tokens[v_at - 1]
                         and classes[v_at - 1] is null))
            then
                v_kind := 'version';
                v_value := v_token;
            else
                loop
                    v_next := classes[v_at + 1];
                    if left(v_next, 1) = '*' and v_number < 1000000 then
                        v_number := v_number * substr(v_next, 2)::numeric;
                        v_weight := 's';
                        v_at := v_at + 1;
                        continue;
                    end if;
                    exit when not v_is_word;
                    if v_number >= 100 and tokens[v_at + 1] = 'and' and left(classes[v_at + 2], 1) in ('#', '~') then
                        v_add := substr(classes[v_at + 2], 2)::numeric;
                        v_number := v_number + v_add;
                        v_at := v_at + 2;
                        continue;
                    end if;
                    exit when v_next is null or left(v_next, 1) not in ('#', '~');
                    v_add := substr(v_next, 2)::numeric;
                    exit when not (v_number between 20 and 90 and v_number % 10 = 0 and v_add < 10)
                        and not (v_number >= 100 and v_number % 100 = 0 and v_add < 100);
                    v_number := v_number + v_add;
                    v_at := v_at + 1;
                end loop;
                v_value := trim_scale(v_number)::text;
                v_next := classes[v_at + 1];
                if v_next = '%' then
                    v_value := v_value || '%';
                    v_at := v_at + 1;
                elsif left(v_next, 1) = 't' and v_number between 0 and 24 then
                    v_kind := 'time';
                    v_number := case when v_next = 't12' and v_number < 12 then v_number + 12
                                     when tokens[v_at + 1] = 'am' and v_number = 12 then 0
                                     else v_number end;
                    v_value := trim_scale(v_number)::text || ':00';
                    v_at := v_at + 1;
                elsif left(v_next, 1) = 'u' then
                    v_facts := v_facts || (E'unit\x1f' || substr(v_next, 2) || E'\x1fw');
                    v_at := v_at + 1;
                elsif tokens[v_at + 1] in ('年', '月', '日', '号', '號', '点', '點', '時', '时', '分') then
                    v_kind := 'date';
                    v_value := v_value || tokens[v_at + 1];
                elsif v_is_word and v_number = 1 then
                    v_weight := 'w';
                end if;
            end if;
        elsif left(v_class, 1) in ('m', 'M') then
            v_month := substr(v_class, 2)::integer;
            v_part := regexp_match(tokens[v_at + 1] collate "C", '^([0-9]{1,2})(?:st|nd|rd|th)?$');
            if v_part is not null then
                v_day := v_part[1]::integer;
                v_at := v_at + 1;
            elsif left(v_class, 1) = 'M' and coalesce(tokens[v_at + 1] collate "C" !~ '^[0-9]{4}$', true)
                and (v_at = 1 or tokens[v_at - 1] = '.' or marked[v_at] = v_token)
            then
                continue;
            end if;
        elsif left(v_class, 1) = 'w' then
            v_kind := 'date';
            v_value := v_days[substr(v_class, 2)::integer];
        elsif left(v_class, 1) = 'o' then
            v_kind := 'numeral';
            v_value := substr(v_class, 2) || 'th';
            v_weight := case when v_class in ('o1', 'o2') then 'w' else 's' end;
        elsif left(v_class, 1) = '$' then
            v_kind := 'currency';
            v_value := substr(v_class, 2);
            v_weight := 'w';
        elsif position(E'\x02' in v_token) > 0 then
            v_kind := 'date';
            v_value := replace(v_token, E'\x02', '-');
        elsif v_token ~ '^[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?$' then
            v_kind := 'time';
            v_value := ltrim(v_token, '0');
            if left(v_value, 1) = ':' then
                v_value := '0' || v_value;
            end if;
            if classes[v_at + 1] = 't12' and split_part(v_value, ':', 1)::integer < 12 then
                v_value := (split_part(v_value, ':', 1)::integer + 12)::text
                    || substr(v_value, position(':' in v_value));
            end if;
        elsif v_token ~ '^[0-9]+(?:st|nd|rd|th|º|ª|er|ère|ème|e)$' then
            v_part := regexp_match(v_token, '^([0-9]+)');
            if left(classes[v_at + 1], 1) in ('m', 'M') and length(v_part[1]) < 3 then
                v_day := v_part[1]::integer;
                v_month := substr(classes[v_at + 1], 2)::integer;
                v_at := v_at + 1;
            elsif classes[v_at + 1] is not null and tokens[v_at + 1] = 'of' and left(classes[v_at + 2], 1) in ('m', 'M')
                and length(v_part[1]) < 3
            then
                v_day := v_part[1]::integer;
                v_month := substr(classes[v_at + 2], 2)::integer;
                v_at := v_at + 2;
            else
                v_kind := 'numeral';
                v_value := v_part[1] || 'th';
            end if;
        elsif v_token ~ '^[0-9]{1,4}[./][0-9]{1,2}[./][0-9]{2,4}$' then
            v_kind := 'date';
            v_part := regexp_match(v_token, '^([0-9]+)([./])([0-9]+)[./]([0-9]+)$');
            if length(v_part[1]) = 4 then
                v_value := v_part[1] || '-' || lpad(v_part[3], 2, '0') || '-' || lpad(v_part[4], 2, '0');
            elsif v_part[2] = '.' or v_part[1]::integer > 12 then
                v_value := v_part[4] || '-' || lpad(v_part[3], 2, '0') || '-' || lpad(v_part[1], 2, '0');
            else
                v_value := v_part[4] || '-' || lpad(v_part[1], 2, '0') || '-' || lpad(v_part[3], 2, '0');
            end if;
        elsif v_token ~ '^[0-9]{1,3}(?:\.[0-9]{3}){2,}$' then
            v_kind := 'numeral';
            v_value := replace(v_token, '.', '');
        elsif v_token ~ '^v\.?[0-9]+(?:\.[0-9a-z]+)*$' or v_token ~ '^[0-9]+(?:\.[0-9a-z]+){2,}(?:-[0-9a-z.]+)?$' then
            v_kind := 'version';
            v_value := ltrim(v_token, 'v.');
        elsif length(v_token) > 1 then
            v_kind := 'identifier';
            v_value := rtrim(v_token, './:');
        end if;

        if v_month is not null then
            v_kind := 'date';
            if tokens[v_at + 1] in (',', 'de', 'of') and tokens[v_at + 2] collate "C" ~ '^[0-9]{4}$' then
                v_at := v_at + 2;
                v_year := tokens[v_at];
            elsif tokens[v_at + 1] collate "C" ~ '^[0-9]{4}$' then
                v_at := v_at + 1;
                v_year := tokens[v_at];
            end if;
            if v_day is not null and v_year is not null then
                v_value := v_year || '-' || lpad(v_month::text, 2, '0') || '-' || lpad(v_day::text, 2, '0');
            else
                v_value := concat_ws(' ', v_day, v_months[v_month], v_year);
            end if;
        end if;
        if v_kind is not null then
            v_facts := v_facts || (v_kind || E'\x1f' || v_value || E'\x1f' || v_weight);
        end if;
    end loop;
    return v_facts;
end;
$function$;
revoke all on function memfold._guard_facts(text[], text[], text[]) from public;

create or replace function memfold._guard_parts(tokens text[], joints text[])
returns text[]
language sql
immutable
parallel safe
begin atomic
    select array_agg(parts.part order by parts.part)
    from (
        select string_agg(listed.token, ' ' order by listed.place) collate "C" as part
        from (
            select unnested.token, unnested.place,
                count(*) filter (where unnested.token = any (joints)) over (order by unnested.place) as number
            from unnest(tokens) with ordinality as unnested(token, place)
        ) as listed
        where listed.token <> all (joints)
        group by listed.number
    ) as parts;
end;
revoke all on function memfold._guard_parts(text[], text[]) from public;

-- The same words in another order: what changed places, or null where only one phrase moved ("tomorrow I fly" / "I fly
-- tomorrow") or the parts of a list did ("tea and milk" / "milk and tea").
create or replace function memfold._guard_order(a text[], a_classes text[], b text[], b_classes text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_a text[] := '{}'::text[];
    v_b text[] := '{}'::text[];
    v_length integer;
    v_from integer := 1;
    v_class text collate "C";
    v_whole_a text[];
    v_whole_b text[];
    v_markers constant text[] := '{am,im,um,zum,zur,in,an,auf,bei,beim,mit,nach,vor,seit,von,vom,aus,für,während,wegen,
        at,on,op,om}'::text[];
    v_focus constant text[] := '{not,no,never,only,just,nicht,nur,nie,pas,seulement,solo,sólo,non,mai,não,só,не,
        только}'::text[];
    v_joints constant text[] := '{and,or,nor,&,",",plus,und,oder,sowie,et,ou,y,e,u,o,ed,и,или,和,与,與,跟,及,或,と,や}'::text[];
begin
    -- grammar is no content; single words joined by conjunctions or commas are put in one order
    for v_place in 1..cardinality(a) loop
        v_class := left(a_classes[v_place], 1);
        if v_class is null or v_class <> 's' then
            v_a := v_a || a[v_place];
        end if;
    end loop;
    for v_place in 1..cardinality(b) loop
        v_class := left(b_classes[v_place], 1);
        if v_class is null or v_class <> 's' then
            v_b := v_b || b[v_place];
        end if;
    end loop;
    v_length := cardinality(v_a);
    if v_a = v_b or v_length <> cardinality(v_b) then
        return null;
    end if;
    v_whole_a := v_a;
    v_whole_b := v_b;
    while v_a[v_from] = v_b[v_from] loop
        v_from := v_from + 1;
    end loop;
    while v_a[v_length] = v_b[v_length] loop
        v_length := v_length - 1;
    end loop;
    v_a := v_a[v_from:v_length];
    v_b := v_b[v_from:v_length];
    v_length := cardinality(v_a);
    if array(select listed.word from unnest(v_a) as listed(word) order by listed.word collate "C")
        <> array(select listed.word from unnest(v_b) as listed(word) order by listed.word collate "C")
    then
        return null;
    end if;

    -- one phrase moved over another: the second text is a rotation of the first, unless what moved only negates
    for v_place in 1..v_length - 1 loop
        if v_b[1] = v_a[v_place + 1] and v_b = v_a[v_place + 1:] || v_a[:v_place] then
            exit when v_place = 1 and v_a[1] = any (v_focus)
                or v_place = v_length - 1 and v_a[v_length] = any (v_focus);
            return null;
        end if;
    end loop;

    -- verb-second languages: a phrase that has its preposition goes to the front, the subject behind the verb
    -- (looked for in sentences only: the search is quadratic)
    for v_left in 1..least(v_length, 40) - 2 loop
        exit when v_length > 40;
        for v_right in v_left + 2..v_length loop
            if v_b[1] = v_a[v_right] and (v_a[1] = any (v_markers) or v_b[1] = any (v_markers))
                and v_b = v_a[v_right:] || v_a[v_left + 1:v_right - 1] || v_a[:v_left]
            then
                return null;
            end if;
        end loop;
    end loop;

    -- the parts of a list changed places: what stands between conjunctions and commas is the same, in either frame
    if v_joints && v_a
        and (memfold._guard_parts(v_a, v_joints) = memfold._guard_parts(v_b, v_joints)
             or memfold._guard_parts(v_whole_a, v_joints) = memfold._guard_parts(v_whole_b, v_joints))
    then
        return null;
    end if;
    return array_to_string(v_a[:6], ' ') || ' <> ' || array_to_string(v_b[:6], ' ');
end;
$function$;
revoke all on function memfold._guard_order(text[], text[], text[], text[]) from public;

-- The names among the words that only one text has, each led by '!' where it surely is one, by '?' where that depends
-- on the other text: the subject that begins a sentence, every noun of German, katakana; by '~' where it begins a
-- sentence and nothing else speaks for a name.
create or replace function memfold._guard_new_names(
    tokens text[], marked text[], classes text[], only_here integer[], others text[], is_german boolean)
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_names text[] := '{}'::text[];
    v_place integer;
    v_count integer := 0;
    v_token text collate "C";
    v_next text collate "C";
    v_class text collate "C";
begin
    for v_at in 1..cardinality(tokens) loop
        if marked[v_at] <> tokens[v_at] then
            v_count := v_count + 1;
        end if;
    end loop;
    -- headlines and shouting: capitals say nothing
    if not is_german and v_count > 2 and v_count * 10 > cardinality(tokens) * 7 then
        return v_names;
    end if;
    foreach v_place in array only_here loop
        v_token := tokens[v_place];
        if v_token ~ '^[\u30A1-\u30FA][\u30A1-\u30FA\u30FC]+$' and classes[v_place] is null then
            v_names := v_names || ('?' || rtrim(v_token, 'ー'));
            continue;
        end if;
        continue when marked[v_place] = v_token or classes[v_place] is not null or v_token ~ '[0-9@_/]'
            or v_token = any (others) or v_token || 's' = any (others) or rtrim(v_token, 's') = any (others);
        if v_place = 1 or tokens[v_place - 1] = '.' then
            v_next := tokens[v_place + 1];
            v_class := classes[v_place + 1];
            if marked[v_place + 1] <> v_next and v_class is null and not is_german
                or v_next in ('''s', 'is', 'was', 'has', 'had', 'does', 'did', 'will', 'would', 'can', 'ist', 'hat',
                              'war', 'wird', 'est', 'a', 'es', 'ha', 'está', 'tiene', 'è', 'é', 'tem')
                or (v_class is null or v_class = 'S') and v_next ~ '[^s]s$' and v_token !~ 's$'
                or v_class is null and left(classes[v_place + 2], 1) in ('s', 'p')
                    and v_next ~ '(?:[^s]s|ed|t|e|a|ó|é|и|т|л|ла)$' and v_token !~ '(?:s|ed|ing)$'
            then
                v_names := v_names || ('?' || v_token);
            else
                v_names := v_names || ('~' || v_token);
            end if;
        elsif is_german then
            if left(classes[v_place - 1], 1) is distinct from 's' or tokens[v_place - 1] = 'ist' then
                v_names := v_names || ('?' || v_token);
            end if;
        else
            v_names := v_names || ('!' || v_token);
        end if;
    end loop;
    return v_names;
end;
$function$;
revoke all on function memfold._guard_new_names(text[], text[], text[], integer[], text[], boolean) from public;

-- The names that make a difference, or null. Case endings of Russian, a genitive s and initials (NYC) make none.
create or replace function memfold._guard_name_change(a text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_ending constant text := '(?:ами|ой|ою|ей|ом|ем|ах|ам|ов|[аяуюеыийь]|(?<=[a-z]{3})s)$';
    v_a text[] := a;
    v_b text[] := b;
    v_name text collate "C";
    v_other text collate "C";
begin
    if a <> '{}' and b <> '{}' then
        foreach v_name in array a loop
            foreach v_other in array b loop
                if regexp_replace(substr(v_name, 2) collate "C", v_ending, '')
                    = regexp_replace(substr(v_other, 2) collate "C", v_ending, '')
                then
                    v_a := array_remove(v_a, v_name);
                    v_b := array_remove(v_b, v_other);
                end if;
            end loop;
        end loop;
        v_name := (select string_agg(substr(listed.name, 2, 1), '') from unnest(v_a) as listed(name));
        v_other := (select string_agg(substr(listed.name, 2, 1), '') from unnest(v_b) as listed(name));
        if length(v_name) > 1 and ('!' || v_name = any (v_b) or '?' || v_name = any (v_b))
            or length(v_other) > 1 and ('!' || v_other = any (v_a) or '?' || v_other = any (v_a))
        then
            return null;
        end if;
    end if;
    -- two that merely begin a sentence are two ways to begin one; a third thing is one sure name beside such a word
    v_name := array_to_string(v_a, ',');
    v_other := array_to_string(v_b, ',');
    if v_name ~ '[!?]' and v_other ~ '[!?]' or v_name like '?%' and v_other like '~%'
        or v_name like '~%' and v_other like '?%'
    then
        return replace(translate(v_name || ' <> ' || v_other, '!?~', ''), ',', ', ');
    end if;
    select string_agg(substr(listed.name, 2), ', ') into v_name
    from unnest(v_a || v_b) as listed(name)
    where listed.name collate "C" like '!%';
    return v_name;
end;
$function$;
revoke all on function memfold._guard_name_change(text[], text[]) from public;

-- A word and its opposite by prefix or suffix (happy / unhappy, careful / careless), or null.
create or replace function memfold._guard_prefix(a text[], b text[])
returns text
language plpgsql
immutable
parallel safe
as $function$
declare
    v_one text collate "C";
    v_two text collate "C";
    v_short text collate "C";
    v_long text collate "C";
    v_prefix text collate "C";
    v_rest text collate "C";
    v_prefixes constant text[] := '{un,dis,in,im,ir,il,non,anti,mis,miss,des,dés,mé,mal,не,бес,без,анти}'::text[];
    v_innocent constant text[] := '{inside,instep,inform,invest,display,discover,impress,improve,discount}'::text[];
    v_ending constant text := '(?:e?s|e?d|ing|ly|e|en|er|em|es|a|o|as|os|t)$';
begin
    -- (long texts are not near-identical by their fortieth new word)
    foreach v_one in array a[:40] loop
        foreach v_two in array b[:40] loop
            v_short := v_one;
            v_long := v_two;
            if length(v_short) > length(v_long) then
                v_short := v_two;
                v_long := v_one;
            end if;
            continue when length(v_short) < 4;
            foreach v_prefix in array v_prefixes loop
                if starts_with(v_long, v_prefix) then
                    v_rest := substr(v_long, length(v_prefix) + 1);
                    if left(v_rest, 3) = left(v_short, 3)
                        and regexp_replace(v_rest, v_ending, '') = regexp_replace(v_short, v_ending, '')
                        and v_long <> all (v_innocent)
                    then
                        return v_one || ' <> ' || v_two;
                    end if;
                end if;
            end loop;
            if right(v_one, 3) = 'ful' and v_two = left(v_one, -3) || 'less'
                or right(v_two, 3) = 'ful' and v_one = left(v_two, -3) || 'less'
            then
                return v_one || ' <> ' || v_two;
            end if;
        end loop;
    end loop;
    return null;
end;
$function$;
revoke all on function memfold._guard_prefix(text[], text[]) from public;

-- The capitalised names of a text in their order: name, the marker of its role (a preposition before it, 's after it),
-- and the number of the coordination ("Alice, Bob and Carol") it belongs to, with U+001F between.
create or replace function memfold._guard_names(tokens text[], marked text[], classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_names text[] := '{}'::text[];
    v_group integer := 0;
    v_last integer := -1;
    v_back integer;
    v_joined boolean;
    v_ending constant text := '(?<=[а-я]{2})(?:ами|ой|ою|ей|ом|ем|ах|ам|ов|[аяуюеыийь])$';
    v_mark text;
begin
    for v_at in 1..cardinality(tokens) loop
        if marked[v_at] <> tokens[v_at] and (classes[v_at] is null or left(classes[v_at], 1) in ('S', 'u', '$')) then
            v_back := v_at - 1;
            v_joined := v_back = v_last;
            while v_back > v_last and left(classes[v_back], 1) in ('&', 's') and tokens[v_back] <> '.' loop
                v_joined := v_joined or classes[v_back] = '&';
                v_back := v_back - 1;
            end loop;
            if v_last < 1 or v_back > v_last or not v_joined then
                v_group := v_group + 1;
                v_back := v_at - 1;
                while v_back > 0 and (left(classes[v_back], 1) = 's' and tokens[v_back] not in ('.', '''s')) loop
                    v_back := v_back - 1;
                end loop;
                v_mark := case when left(classes[v_back], 1) in ('p', 't') then tokens[v_back] else '' end;
            end if;
            v_names := v_names || (regexp_replace(tokens[v_at] collate "C", v_ending, '') || E'\x1f'
                || case when tokens[v_at + 1] = '''s' then '''s' else v_mark end || E'\x1f' || v_group);
            v_last := v_at;
        end if;
    end loop;
    return v_names;
end;
$function$;
revoke all on function memfold._guard_names(text[], text[], text[]) from public;

-- Each number of a text with the word it counts, as word, U+001F, number.
create or replace function memfold._guard_counted(tokens text[], classes text[])
returns text[]
language plpgsql
immutable
parallel safe
as $function$
declare
    v_counted text[] := '{}'::text[];
begin
    for v_at in 1..cardinality(tokens) - 1 loop
        if (left(classes[v_at], 1) = '#' or classes[v_at] is null and tokens[v_at] collate "C" ~ '^[-+]?[0-9.]+$')
            and (classes[v_at + 1] is null or left(classes[v_at + 1], 1) in ('S', 'u', '$', '%'))
        then
            v_counted := v_counted
                || (tokens[v_at + 1] || E'\x1f' || ltrim(coalesce(classes[v_at], tokens[v_at]), '#'));
        end if;
    end loop;
    return v_counted;
end;
$function$;
revoke all on function memfold._guard_counted(text[], text[]) from public;

create or replace function memfold._guard(tenant_id text, a text, b text)
returns text[]
language plpgsql
stable
parallel safe
set search_path = pg_catalog, pg_temp
-- its queries are over a handful of words: planning them anew for each pair would cost more than running them
set plan_cache_mode = force_generic_plan
as $function$
declare
    v_signals text[] := '{}'::text[];
    v_marked text collate "C";
    v_plain_a text collate "C";
    v_plain_b text collate "C";
    v_marked_a text[];
    v_marked_b text[];
    v_a text[];
    v_b text[];
    v_class_a text[];
    v_class_b text[];
    v_length_a integer;
    v_length_b integer;
    v_from integer := 1;
    v_end integer := 0;
    v_only_a integer[] := '{}'::integer[];
    v_only_b integer[] := '{}'::integer[];
    v_words_a text[] := '{}'::text[];
    v_words_b text[] := '{}'::text[];
    v_place integer;
    v_other integer;
    v_count integer;
    v_class text;
    v_token text collate "C";
    v_found text collate "C";
    v_capitals_a integer;
    v_capitals_b integer;
    v_negates boolean := false;
    v_states boolean := false;
    v_capital boolean := false;
    v_content boolean := false;
    v_facts_a text[];
    v_facts_b text[];
    v_names_a text[];
    v_names_b text[];
    v_kinds text[];
    v_text text;
    v_many constant text[] := '{#2,#3,#4,#5,#6,#7,#8,#9,#10,#12}'::text[];
    v_german boolean;
    v_is_eastern boolean;
    -- regexps are cached by their text, so that the same one is written once
    v_german_words constant text collate "C" :=
        ' (?:der|das|und|ist|nicht|eine|einen|einem|mit|für|hat|mag|bei|seit|von|zu|im|wohnt|lebt|heißt|trinkt|isst) ';
begin
    v_marked := memfold._guard_text(a);
    v_plain_a := translate(v_marked, E'\x01', '');
    v_marked_a := string_to_array(v_marked, ' ');
    v_capitals_a := length(v_marked) - length(v_plain_a);
    v_marked := memfold._guard_text(b);
    v_plain_b := translate(v_marked, E'\x01', '');
    if v_plain_a = v_plain_b then
        return v_signals;
    end if;
    v_marked_b := string_to_array(v_marked, ' ');
    v_capitals_b := length(v_marked) - length(v_plain_b);
    v_a := string_to_array(v_plain_a, ' ');
    v_b := string_to_array(v_plain_b, ' ');
    v_length_a := cardinality(v_a);
    v_length_b := cardinality(v_b);
    v_class_a := memfold._guard_classes(v_a);
    v_class_b := memfold._guard_classes(v_b);

    -- words of one text only: equal ends go first, then each word takes its like
    while v_a[v_from] = v_b[v_from] loop
        v_from := v_from + 1;
    end loop;
    v_count := least(v_length_a, v_length_b) - v_from;
    while v_end <= v_count and v_a[v_length_a - v_end] = v_b[v_length_b - v_end] loop
        v_end := v_end + 1;
    end loop;
    v_words_b := v_b[v_from:v_length_b - v_end];
    for v_place in v_from..v_length_a - v_end loop
        v_other := array_position(v_words_b, v_a[v_place]);
        if v_other is null then
            v_only_a := v_only_a || v_place;
        else
            v_words_b[v_other] := null;
        end if;
    end loop;
    for v_place in 1..coalesce(cardinality(v_words_b), 0) loop
        if v_words_b[v_place] is not null then
            v_only_b := v_only_b || (v_place + v_from - 1);
        end if;
    end loop;
    v_words_b := '{}'::text[];

    foreach v_place in array v_only_a loop
        v_class := left(v_class_a[v_place], 1);
        v_token := v_a[v_place];
        if v_class is null or v_class in ('S', 'p') then
            v_words_a := v_words_a || v_token;
            v_content := v_content or v_class is null or v_class = 'S';
            v_capital := v_capital or v_marked_a[v_place] <> v_token or left(v_token, 1) between 'ァ' and 'ヺ';
            v_states := v_states or v_token ~ '[0-9@_/.:]';
        elsif v_class in ('n', 'q') then
            v_negates := true;
        elsif v_class not in ('s', '&') then
            v_states := true;
            v_words_a := v_words_a || v_token;
        end if;
    end loop;
    foreach v_place in array v_only_b loop
        v_class := left(v_class_b[v_place], 1);
        v_token := v_b[v_place];
        if v_class is null or v_class in ('S', 'p') then
            v_words_b := v_words_b || v_token;
            v_content := v_content or v_class is null or v_class = 'S';
            v_capital := v_capital or v_marked_b[v_place] <> v_token or left(v_token, 1) between 'ァ' and 'ヺ';
            v_states := v_states or v_token ~ '[0-9@_/.:]';
        elsif v_class in ('n', 'q') then
            v_negates := true;
        elsif v_class not in ('s', '&') then
            v_states := true;
            v_words_b := v_words_b || v_token;
        end if;
    end loop;

    -- negations
    v_text := v_plain_a || v_plain_b;
    v_is_eastern := octet_length(v_text) > length(v_text)
        and v_text collate "C" ~ '[\u0E00-\u0E7F\u3040-\u30FF\u3400-\u9FFF\uAC00-\uD7A3]';
    if v_negates
        or v_is_eastern
            and array_to_string(v_words_a || v_words_b, '') ~ '[不没沒无無別别未勿非なくずけぬんないまい않없못아니말\u0E44]'
    then
        v_count := memfold._guard_negations(v_plain_a, v_class_a) - memfold._guard_negations(v_plain_b, v_class_b);
        if v_count % 2 <> 0 then
            v_found := null;
            foreach v_place in array case when v_count > 0 then v_only_a else v_only_b end loop
                if v_count > 0 and left(v_class_a[v_place], 1) in ('n', 'q') then
                    v_found := v_a[v_place];
                elsif v_count < 0 and left(v_class_b[v_place], 1) in ('n', 'q') then
                    v_found := v_b[v_place];
                end if;
                exit when v_found is not null;
            end loop;
            v_signals := v_signals || ('negation: ' || coalesce(v_found, v_count::text));
        end if;
    end if;

    -- numbers, dates, versions, currencies, units, identifiers
    if v_states then
        v_facts_a := memfold._guard_facts(v_a, v_marked_a, v_class_a);
        v_facts_b := memfold._guard_facts(v_b, v_marked_b, v_class_b);
        if v_facts_a <> v_facts_b then
            select coalesce(array_agg(compared.kind || ': ' || compared.difference), '{}') into v_kinds
            from (
                select facts.kind,
                    concat_ws(' <> ', string_agg(facts.value, ', ' order by facts.value) filter (where facts.side = 1),
                              string_agg(facts.value, ', ' order by facts.value) filter (where facts.side = 2))
                        as difference,
                    bool_or(facts.weight = 's') or count(distinct facts.side) = 2 as differs
                from (
                    select distinct split_part(stated.fact, E'\x1f', 1) as kind,
                        split_part(stated.fact, E'\x1f', 2) as value,
                        split_part(stated.fact, E'\x1f', 3) as weight, stated.side
                    from (select unnest(v_facts_a), 1 union all select unnest(v_facts_b), 2) as stated(fact, side)
                ) as facts
                where not exists (
                    select from (select unnest(v_facts_a), 1 union all select unnest(v_facts_b), 2) as twin(fact, side)
                    where twin.side <> facts.side and split_part(twin.fact, E'\x1f', 2) = facts.value
                )
                group by facts.kind
            ) as compared
            where compared.differs;
            v_signals := v_signals || v_kinds;
        end if;
    end if;

    -- names of one text only
    if v_capital then
        v_german := (' ' || v_plain_a || ' ' || v_plain_b || ' ') ~ v_german_words;
        v_text := memfold._guard_name_change(
            memfold._guard_new_names(v_a, v_marked_a, v_class_a, v_only_a, v_b, v_german),
            memfold._guard_new_names(v_b, v_marked_b, v_class_b, v_only_b, v_a, v_german));
        if v_text is not null then
            v_signals := v_signals || ('name: ' || v_text);
        end if;
    end if;

    -- opposites
    if v_content or v_words_a <> '{}' then
        if v_words_a <> '{}' and v_words_b <> '{}' then
            for v_token, v_found in
                -- a lateral probe of the primary key for every word, whatever the planner thinks of the table
                select listed.word, found.antonym
                from (select distinct unnest(v_words_a)) as listed(word)
                cross join lateral (
                    select antonyms.antonym from memfold.antonyms
                    where antonyms.tenant_id = any (array['*', _guard.tenant_id])
                        and antonyms.word = listed.word collate "C" and antonyms.antonym = any (v_words_b)
                    offset 0) as found
                union all
                select found.antonym, listed.word
                from (select distinct unnest(v_words_b)) as listed(word)
                cross join lateral (
                    select antonyms.antonym from memfold.antonyms
                    where antonyms.tenant_id = any (array['*', _guard.tenant_id])
                        and antonyms.word = listed.word collate "C" and antonyms.antonym = any (v_words_a)
                    offset 0) as found
            loop
                v_signals := v_signals || ('antonym: ' || v_token || ' <> ' || v_found);
            end loop;
            v_text := memfold._guard_prefix(v_words_a, v_words_b);
            if v_text is not null then
                v_signals := v_signals || ('prefix: ' || v_text);
            end if;
        end if;
    end if;
    if v_is_eastern then
        v_plain_a := replace(v_plain_a, ' ', '');
        v_plain_b := replace(v_plain_b, ' ', '');
        for v_token, v_found in
            select antonyms.word, antonyms.antonym
            from memfold.antonyms
            where antonyms.tenant_id in ('*', _guard.tenant_id) and antonyms.word >= U&'\2E80'
                and (position(antonyms.word in v_plain_a) > 0 and position(antonyms.antonym in v_plain_b) > 0
                        and position(antonyms.word in v_plain_b) = 0 and position(antonyms.antonym in v_plain_a) = 0
                    or position(antonyms.word in v_plain_b) > 0 and position(antonyms.antonym in v_plain_a) > 0
                        and position(antonyms.word in v_plain_a) = 0 and position(antonyms.antonym in v_plain_b) = 0)
        loop
            v_signals := v_signals || ('antonym: ' || v_token || ' <> ' || v_found);
        end loop;
    end if;

    -- one name of ideographs for another, where a place or a person is named ("住在成都" / "住在重庆")
    if v_is_eastern and v_signals = '{}' and v_words_a <> '{}' and v_words_b <> '{}' then
        v_token := array_to_string(v_a[v_from:v_length_a - v_end], '');
        v_found := array_to_string(v_b[v_from:v_length_b - v_end], '');
        if v_token ~ '^[\u3400-\u9FFF]{1,6}$' and v_found ~ '^[\u3400-\u9FFF]{1,6}$'
            and translate(v_token, v_found, '') = v_token
            and (v_a[v_from - 1] in ('在', '叫', '自', '去', '到', '给', '給')
                 or v_a[v_length_a - v_end + 1] in ('に', 'で', 'へ', 'さ', '様', '君')
                    and length(v_token) > 1 and length(v_found) > 1)
        then
            v_signals := v_signals || ('name: ' || v_token || ' <> ' || v_found);
        end if;
    end if;

    -- the same words, the same names in another order
    if v_signals = '{}' then
        if not v_content and cardinality(v_words_a) = cardinality(v_words_b) then
            v_text := memfold._guard_order(v_a, v_class_a, v_b, v_class_b);
            if v_text is not null then
                v_signals := v_signals || ('order: ' || v_text);
            end if;
        end if;
        -- "3 cats and 5 dogs" / "5 cats and 3 dogs"
        if v_content and v_plain_a ~ '[0-9]' or v_class_a && v_many then
            v_facts_a := memfold._guard_counted(v_a, v_class_a);
            v_facts_b := memfold._guard_counted(v_b, v_class_b);
            if cardinality(v_facts_a) > 1 and cardinality(v_facts_b) > 1 and not v_facts_a <@ v_facts_b then
                foreach v_token in array v_facts_a loop
                    v_found := split_part(v_token, E'\x1f', 1);
                    if v_token <> all (v_facts_b) then
                        select 'numeral: ' || split_part(v_token, E'\x1f', 2) || ' ' || v_found || ' <> '
                                || split_part(other.counted, E'\x1f', 2) || ' ' || v_found
                        into v_text
                        from unnest(v_facts_b) as other(counted)
                        where split_part(other.counted, E'\x1f', 1) = v_found and other.counted <> all (v_facts_a)
                        limit 1;
                        v_signals := v_signals || v_text;
                        exit when v_text is not null;
                    end if;
                end loop;
                v_signals := array_remove(v_signals, null);
            end if;
        end if;
        if v_capitals_a > 1 and v_capitals_b > 1 then
            v_names_a := memfold._guard_names(v_a, v_marked_a, v_class_a);
            v_names_b := memfold._guard_names(v_b, v_marked_b, v_class_b);
        end if;
        if cardinality(v_names_a) > 1 and cardinality(v_names_b) > 1 and v_names_a <> v_names_b then
            with stated as (
                select side, place, split_part(fact, E'\x1f', 1) as name, split_part(fact, E'\x1f', 2) as mark,
                    split_part(fact, E'\x1f', 3)::integer as band
                from (select 1, named.* from unnest(v_names_a) with ordinality as named
                      union all select 2, named.* from unnest(v_names_b) with ordinality as named)
                    as listed(side, fact, place)
            ), shared as (
                select first.name, first.band as band_a, second.band as band_b
                from stated as first
                join stated as second on second.name = first.name and second.side = 2
                where first.side = 1 and not (first.mark = second.mark and first.mark <> '')
                    and (select count(*) from stated where stated.name = first.name) = 2
            )
            select string_agg(name, ', ' order by band_a, name) || ' <> '
                || string_agg(name, ', ' order by band_b, name)
            into v_text
            from shared
            having string_agg(name, ', ' order by band_a, name) <> string_agg(name, ', ' order by band_b, name);
            if v_text is not null then
                v_signals := v_signals || ('name: ' || v_text);
            end if;
        end if;
    end if;

    if v_signals <> '{}' then
        v_signals := array(
            select distinct left(listed.signal, 200) collate "C" from unnest(v_signals) as listed(signal) order by 1);
    end if;
    return v_signals;
end;
$function$;
revoke all on function memfold._guard(text, text, text) from public;
comment on function memfold._guard(text, text, text) is
'Compares the cheap facts of two texts and returns the differences, each as "kind: what"; an empty array is clean.
Kinds: negation, numeral, date, time, version, currency, unit, identifier, name, antonym, prefix, order.';
